"""The files around the code parse, agree with pyproject.toml, and name what exists: workflows, forms, citation, security."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import mm32

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PATH = re.compile(
    r"(?<![\w/.$-])(?:(?:docs|tests|src|benchmarks|examples|\.ci|\.github)/[\w./-]+\w|[A-Z]+\.(?:md|cff))"
)


def load(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def test_there_is_something_to_test() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]
    assert len(FORMS) == 2


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_what_exists(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    workflow = load(path)
    assert workflow[True], "of the key on, which YAML 1.1 reads as a truth"
    assert workflow["permissions"] == {"contents": "read"}
    called = []
    for step in steps(path):
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[\w/.]+", step["uses"])
        for target in re.findall(r"\bmake ([\w-]+)", step.get("run", "")):
            called.append(target)
            assert target in targets
    assert called


def test_ci_has_every_python_with_the_oldest_and_the_newest_torch() -> None:
    jobs = load(GITHUB / "workflows" / "ci.yml")["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    prefix = "Programming Language :: Python :: "
    assert matrix["python"] == [c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(f"{prefix}3.")]
    (oldest,) = (d.removeprefix("torch>=") for d in PROJECT["dependencies"] if d.startswith("torch>="))
    assert matrix["torch"] == [f"torch=={oldest}.*", "torch"]
    assert {"run": ".ci/run", "env": {"PYTHON": "python"}} in jobs["run"]["steps"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_a_release_is_published_without_a_token() -> None:
    path = GITHUB / "workflows" / "release.yml"
    jobs = load(path)["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"
    assert "permissions" not in jobs["build"]
    assert "secrets." not in path.read_text()
    extras = set(re.findall(r"whl\)\[([\w,]+)\]", path.read_text())[0].split(","))
    assert extras <= PROJECT["optional-dependencies"].keys()


def test_what_the_release_looks_for_in_the_files_is_there() -> None:
    assert re.findall(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), flags=re.M) == [mm32.__version__]
    assert re.search(rf"^## {re.escape(mm32.__version__)} \((unreleased|20)", (ROOT / "CHANGELOG.md").read_text(), re.M)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms(path: Path) -> None:
    form = load(path)
    assert form["name"]
    assert form["description"]
    for field in form["body"]:
        assert field["type"] in ("textarea", "dropdown")
        assert field["attributes"]["label"]
        assert ("options" in field["attributes"]) == (field["type"] == "dropdown")
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))


def test_the_citation_is_of_this_version() -> None:
    cited = load(ROOT / "CITATION.cff")
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= cited.keys(), "what the format demands"
    assert all(author["name"] for author in cited["authors"])
    assert cited["type"] == "software"
    assert (cited["version"], cited["license"]) == (mm32.__version__, PROJECT["license"])


@pytest.mark.parametrize(
    "path",
    [ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *WORKFLOWS, *FORMS],
    ids=lambda path: path.name,
)
def test_files_that_are_named_exist(path: Path) -> None:
    text = re.sub(r"https?://\S+", "", path.read_text())
    for name in PATH.findall(text):
        name = name.removesuffix("/")
        assert "results/" in name or any(ROOT.glob(name)), f"{path.name} names {name}"
    if path.name == "SECURITY.md":
        assert "docs/defence.md" in text


def test_the_design_names_every_module() -> None:
    """Each module is named in the entry of its own folder, or of the nearest folder above it that has one."""
    text = (ROOT / "docs" / "design.md").read_text()
    entries: dict[str, list[str]] = {}  # the lines of each folder's entry, by the folder's path
    above: list[tuple[int, str]] = []  # the folders that the present line is in: their indentation and path
    for line in text[text.index("    src/mm32/") : text.index("## Rules")].splitlines():
        indent = len(line) - len(line.lstrip())
        while above and indent <= above[-1][0]:
            above.pop()
        if (found := re.match(r" +([\w/]+)/(?=\s|$)", line)) is not None and indent < 20:
            above.append((indent, "/".join([*([above[-1][1]] if above else []), found.group(1)])))
        if above:
            entries.setdefault(above[-1][1], []).append(line)
    own = [*(ROOT / "src" / "mm32").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    assert len(own) > 100
    missing = []
    for path in (p for p in own if not p.stem.startswith("__")):
        folder = next(str(f) for f in path.relative_to(ROOT).parents if str(f) in entries)
        if path.stem not in re.findall(r"\w+", " ".join(entries[folder])):
            missing.append(f"{path.relative_to(ROOT)}: not named at {folder}/")
    assert sorted(missing) == []


def test_tests_share_by_modules_that_are_no_tests() -> None:
    tests = [*(ROOT / "tests").rglob("test_*.py")]
    assert len(tests) > 80
    found = re.compile(r"^\s*(?:from|import) (?:verify\.)?test_\w+", re.M)
    assert sorted(p.name for p in tests if found.search(p.read_text())) == []


def test_device_code_has_the_columns_of_the_rest() -> None:
    """ruff limits the Python to 130 columns, so device code may have no more."""
    sources = [path for path in (ROOT / "src").rglob("*.cu*") if path.suffix in (".cu", ".cuh")]
    assert len(sources) > 40
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 130
    ]
    assert long == []
