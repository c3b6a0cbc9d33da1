"""The wheel and the source distribution: what they contain, what their metadata say, that an index can show their description,
and that the wheel works alone."""

from __future__ import annotations

import email
import email.policy
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import mm32

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow  # `make package` runs them in every .ci/run


def call(*command: object, expect: tuple[int, ...] = (0,), **options: object) -> str:
    """Run a command and return what it prints; if it is expected to fail, also what it prints on standard error."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload]
    assert done.returncode in expect, done.stdout + done.stderr
    return done.stdout if 0 in expect else done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution that it was made from."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def test_a_wheel_can_be_made_of_what_the_container_gets(tmp_path: Path) -> None:
    tar = next(line for line in (ROOT / "docker" / "build.sh").read_text().splitlines() if line.startswith("tar "))
    call("bash", "-c", f"{tar.rstrip(' |')} | tar --extract --directory {shlex.quote(str(tmp_path))}", cwd=ROOT)
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", tmp_path)
    assert "mm32/errors.md" in inside(next((tmp_path / "dist").glob("*.whl")))


def inside(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"mm32-{mm32.__version__}.dist-info/METADATA").decode()
    return email.message_from_string(text, policy=email.policy.compat32)


def test_the_wheel_has_the_package_the_examples_and_the_page_of_errors(built: tuple[Path, Path]) -> None:
    names = {name for name in inside(built[0]) if ".dist-info/" not in name and "/cubins/" not in name}
    of_package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "mm32").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and "cubins" not in path.parts
    }
    examples = {
        f"mm32/examples/{path.relative_to(ROOT / 'examples').as_posix()}"
        for path in ROOT.glob("examples/**/*.*")
        if path.suffix in (".py", ".ipynb")
    }
    assert len(examples) >= 12
    assert names == of_package | examples | {"mm32/errors.md"}
    assert "mm32/py.typed" in names


def test_the_source_distribution_has_what_the_repository_has(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    if not (ROOT / ".git").exists():
        pytest.skip("no repository to compare with")
    tracked = set(call("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard").split("\n")) - {""}
    assert names - {"PKG-INFO"} == {name for name in tracked if (ROOT / name).exists()}


def test_what_an_index_shows(built: tuple[Path, Path]) -> None:
    said = metadata(built[0])
    assert (said["Name"], said["Version"], said["License-Expression"]) == ("mm32", mm32.__version__, "Apache-2.0")
    assert said["Description-Content-Type"] == "text/markdown"
    assert said["Requires-Python"] == "<3.14,>=3.10"
    assert {"cu12", "cu13", "cli"} <= set(said.get_all("Provides-Extra") or ())
    text = said.get_payload()
    assert isinstance(text, str)
    assert text.lstrip().startswith("# mm32\n")
    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []
    for address in said.get_all("Project-URL") or ():
        assert re.fullmatch(r"\w+, https://\S+", address)


def test_an_index_can_show_the_description(built: tuple[Path, Path]) -> None:
    if importlib.util.find_spec("twine") is None:
        pytest.skip("twine is not here: make package installs it")
    said = call(sys.executable, "-m", "twine", "check", "--strict", *built)
    assert said.count("PASSED") == 2


def test_the_wheel_works_without_a_checkout(built: tuple[Path, Path], tmp_path: Path) -> None:
    """It works in an environment of its own, which finds torch and other packages in this one's folders, without their .pth
    files."""
    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MM32"))}

    def run(*command: object, expect: tuple[int, ...] = (0,)) -> str:
        return call(*command, expect=expect, cwd=tmp_path, env={**bare, "COLUMNS": "300"})

    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", built[0])
    (site,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    (site / "others.pth").write_text("\n".join(dict.fromkeys([sysconfig.get_path("purelib"), *_parents()])) + "\n")
    code = (
        "import mm32, torch; print(mm32.__file__); print(mm32.matmul(torch.ones(2, 3), torch.ones(3, 2)).sum().item());"
        "print(mm32.explain(torch.ones(2, 3), torch.ones(3, 2)))"
    )
    where, total, how = run(python, "-c", code).splitlines()
    assert Path(where) == site / "mm32" / "__init__.py"
    assert (total, how.split()[0]) == ("12.0", "device")
    command = site.parents[2] / "bin" / "mm32"
    assert run(command, "--version") == f"mm32 {mm32.__version__}\n"
    assert "verify" in run(command, "--help")
    assert "kernel     simt" in run(command, "explain", "64x64x64", "--kernel", "simt")
    assert "class ModelNew" in run(command, "export", "64x64x64:tt", "--kernel", "simt")
    assert (site / "mm32" / "errors.md").read_bytes() == (ROOT / "docs" / "errors.md").read_bytes()
    shown = run(command, "errors", "mat1 and mat2 shapes cannot be multiplied (8x9 and 7x6)")
    assert shown.startswith("Shapes\n\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)")
    assert "get_inputs" in (site / "mm32" / "examples" / "matmul_tt.py").read_text()
    assert "there are linear_relu, nn, nt, small, tn, tt, tt_relu" in run(
        command, "verify", "--example", "zz", expect=(2,)
    )
    # On a CPU both sides are torch, so the candidate may be faster, slower or neither.
    page = run(command, "verify", "--example", "small", "--trials", "1", expect=(0, 1, 3))
    assert page.splitlines()[-1].startswith("SAME, ")
    assert "left out:" not in page


def _parents() -> list[str]:
    """Return the package folders on this environment's path, also those of an environment that it was made from."""
    return [path for path in sys.path if path.endswith("-packages")]
