"""The worker's image and recipes, checked by their text: there is no docker and no SLURM here, so no test builds or runs them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, in order, with continued lines joined."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in lines]


def test_the_base_and_torch_are_pinned() -> None:
    found = instructions()
    defaults = dict(value.split("=", 1) for name, value in found if name == "ARG")
    (base,) = (value for name, value in found if name == "FROM")
    for name, value in defaults.items():
        base = base.replace(f"${{{name}}}", value)
    assert re.fullmatch(r"nvidia/cuda:\d+\.\d+\.\d+-devel-ubuntu\d\d\.\d\d", base)
    assert re.fullmatch(r"\d+\.\d+\.\d+", defaults["TORCH"])
    installs = [value for name, value in found if name == "RUN" and "pip install" in value]
    assert any("torch==${TORCH}" in value for value in installs)
    major = defaults["CUDA"].split(".")[0]
    assert defaults["EXTRA"] == f"cu{major}"
    assert defaults["TORCH_INDEX"].rsplit("/", 1)[1].startswith(f"cu{major}")
    project = (ROOT / "pyproject.toml").read_text()
    for extra in ("cli", defaults["EXTRA"]):
        assert f"\n{extra} = [" in project
    least = re.findall(r'"torch>=([\d.]+)"', project)[0]
    assert [int(part) for part in defaults["TORCH"].split(".")] >= [int(part) for part in least.split(".")]


def test_it_does_not_run_as_root_and_ends_as_the_worker() -> None:
    found = instructions()
    users = [value for name, value in found if name == "USER"]
    assert users == ["10001:10001"]
    after = found[found.index(("USER", users[0])) + 1 :]
    assert [name for name, _ in after] == ["VOLUME", "ENTRYPOINT", "CMD"]
    assert dict(after)["ENTRYPOINT"] == '["mm32", "verify", "--worker"]'
    assert any(name == "RUN" and "useradd --uid 10001" in value for name, value in found)


def test_nothing_secret_and_nothing_unneeded_goes_in() -> None:
    found = instructions()
    assert not [value for name, value in found if name == "ADD"]
    text = (DOCKER / "Dockerfile").read_text()
    assert not re.search(r"(?i)token|password|secret|credential|_key\b|ssh|curl|wget|sudo|:latest", text)
    copied = {word for name, value in found if name == "COPY" for word in value.split()[:-1]}
    assert copied == {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src", "examples", "docs/errors.md"}
    sent = next(line for line in (DOCKER / "build.sh").read_text().splitlines() if line.startswith("tar "))
    assert copied <= set(shlex.split(sent.rstrip("|"))[3:])
    assert all((ROOT / name).exists() for name in copied)


def test_it_runs_without_network_root_and_rights() -> None:
    text = (DOCKER / "run.sh").read_text().replace("\\\n", " ")
    (command,) = (line for line in text.splitlines() if line.startswith("exec docker run"))
    for option in (
        "--network none",
        "--user 10001:10001",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--read-only",
        "--tmpfs /tmp:exec,",
        "--gpus all",
        ":ro",
    ):
        assert option in re.sub(r"\s+", " ", command)
    assert "--privileged" not in text


@pytest.mark.parametrize("script", ["build.sh", "run.sh"])
def test_the_scripts_are_bash(script: str) -> None:
    path = DOCKER / script
    assert path.stat().st_mode & 0o111
    assert path.read_text().startswith("#!/usr/bin/env bash\n")
    bash = shutil.which("bash")
    assert bash is not None
    assert subprocess.run([bash, "-n", str(path)], capture_output=True, text=True, check=False).stderr == ""


def test_what_is_run_without_arguments_says_how() -> None:
    done = subprocess.run([str(DOCKER / "run.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "Run a worker: docker/run.sh STORE SCRIPTS [TAG]")


def test_the_recipe_for_slurm_is_bash_with_its_directives() -> None:
    page = (ROOT / "docs" / "batches.md").read_text()
    (recipe,) = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", page, flags=re.DOTALL)
    done = subprocess.run(["bash", "-n"], input=recipe, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    directives = [line for line in recipe.splitlines() if line.startswith("#SBATCH ")]
    assert any("--array=" in line for line in directives)
    assert any("--gpus" in line for line in directives)
    assert re.search(r'^(srun |exec )?mm32 verify --worker "\$STORE"', recipe, flags=re.MULTILINE)
