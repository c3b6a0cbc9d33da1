"""The border between the trusted side and the code beside a candidate: who may import whom."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import mm32.verify

PACKAGE = Path(mm32.verify.__file__).parent
ASIDE = ("worker", "batch", "html")  # what runs beside a candidate (worker), and what stands on top of it all
TRUSTED = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in ASIDE)
EXCHANGE = {f"exchange.{name}" for name in ("wire", "named", "memory", "handover")}
WORKER = sorted(path.stem for path in (PACKAGE / "worker").glob("*.py"))


def imports(path: Path) -> set[str]:
    """Return the modules of mm32.verify that a file imports anywhere, named from the package: `report`, `worker.main`."""
    inside = ["mm32", "verify", *path.relative_to(PACKAGE).with_suffix("").parts[:-1]]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [*inside[: len(inside) - node.level + 1]] if node.level else []
            base += node.module.split(".") if node.module else []
            found |= {".".join([*base, alias.name]) for alias in node.names}
    named = set()
    for name in found:
        parts = name.split(".")[2:] if name.startswith("mm32.verify") else []
        while (
            parts and not PACKAGE.joinpath(*parts).with_suffix(".py").exists() and not PACKAGE.joinpath(*parts).is_dir()
        ):
            parts.pop()  # a name in a module
        if parts:
            named.add(".".join(parts))
    return named


@pytest.mark.parametrize("name", WORKER)
def test_the_worker_imports_only_the_message_format_and_shared_memory(name: str) -> None:
    other = {other for other in imports(PACKAGE / "worker" / f"{name}.py") if not other.startswith("worker")}
    assert other <= EXCHANGE


def test_what_both_sides_import_imports_nothing_else() -> None:
    folder = PACKAGE / "exchange"
    assert imports(folder / "__init__.py") == imports(folder / "memory.py") == imports(folder / "named.py") == set()
    assert imports(folder / "wire.py") == {"exchange.memory", "exchange.named"}
    assert imports(folder / "handover.py") == {"exchange.memory", "exchange.wire"}


@pytest.mark.parametrize(
    "path",
    [path for path in TRUSTED if path.parent.stem != "reference"],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_the_trusted_side_only_starts_the_programs_of_the_workers(path: Path) -> None:
    found = imports(path)
    assert not {other for other in found if other.split(".")[0] in ("worker", "reference")}


@pytest.mark.parametrize("path", sorted((PACKAGE / "html").glob("*.py")), ids=lambda path: path.stem)
def test_pages_are_made_of_records_alone(path: Path) -> None:
    """The code that makes HTML runs nothing and asks no process."""
    assert {name for name in imports(path) if not name.startswith("html")} <= {
        "judging.picture",
        "text",
        "verdict",
    }


@pytest.mark.parametrize("folder", ["inputs", "judging", "timing", "worker", "reference"])
def test_a_package_says_what_each_of_its_modules_is(folder: str) -> None:
    said = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text())) or ""
    named = {word for line in said.splitlines() for word in line.strip().split("  ")[0].split(", ")}
    assert {path.stem for path in (PACKAGE / folder).glob("*.py")} - {"__init__"} <= named


def test_the_references_program_is_the_one_that_shares_the_workers_code() -> None:
    files = (PACKAGE / "reference").glob("*.py")
    assert {name for path in files for name in imports(path) if name.startswith("worker")} == {
        "worker.main",
        "worker.plain",
        "worker.runner",
    }


def loaded(code: str) -> set[str]:
    """Return the modules of mm32.verify that a new interpreter has loaded after `code`."""
    show = "print(*(name for name in sys.modules if name.startswith('mm32.verify.')))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; {show}"], capture_output=True, text=True, check=True
    )
    return {name.removeprefix("mm32.verify.") for name in done.stdout.split()}


def test_what_a_candidates_process_has_loaded() -> None:
    assert loaded("import mm32.verify.worker.main") == EXCHANGE | {"exchange", "worker"} | {
        f"worker.{name}" for name in WORKER if name not in ("__init__", "rewrite")
    }


def test_a_call_of_the_package_names_its_function() -> None:
    """Otherwise the package is like any other: it can be imported, reloaded, and looked into."""
    for calling in (lambda: mm32.verify("a.py", "b.py"), lambda: mm32.verify(reference="a.py"), mm32.verify):
        with pytest.raises(TypeError, match=r"call mm32\.verify\.verify\(reference, candidate\)"):
            calling()
    assert isinstance(mm32.verify, ModuleType)
    assert inspect.ismodule(mm32.verify)
    assert importlib.reload(mm32.verify) is mm32.verify is sys.modules["mm32.verify"]
    assert mm32.verify.verify is mm32.verify.entry.verify
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = mm32.verify.no_such_name


def test_what_the_tools_process_has_loaded() -> None:
    assert loaded("import mm32.verify") == set()
    assert not {name for name in loaded("from mm32.verify import verify") if name.startswith(("worker", "reference"))}
