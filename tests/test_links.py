"""The links of README.md and docs/ have targets: in the repository, in the built site, and in a package index's description."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("**/*.md"))]
LINK = re.compile(r"\[([^\]]+)\]\(((?!https?://|#)[^)]+)\)")
PICTURE = re.compile(r'(?:src|srcset)="([^"]+)"')


def links(page: Path) -> list[tuple[str, str]]:
    """Return the text and the target of each link that is not a URL, outside of code."""
    return LINK.findall(re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL))


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{name}.py")
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    for _, target in links(page):
        path = target.partition("#")[0]
        at = ROOT / path[1:] if path.startswith("/") else page.parent / path
        assert at.exists(), f"{page.name} links to {target}"
    for name in PICTURE.findall(page.read_text()):
        assert (page.parent / name).is_file(), f"{page.name} shows {name}"


@pytest.fixture
def hatch_build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module hatch_build, for which hatchling need not be installed."""
    for name, attribute in (
        ("metadata.plugin", "MetadataHookInterface"),
        ("builders.hooks.plugin", "BuildHookInterface"),
    ):
        interface = ModuleType("interface")
        setattr(interface, attribute, object)
        parts = ["hatchling", *name.split(".")]
        for end in range(len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[: end + 1]), ModuleType(parts[end]))
        monkeypatch.setitem(sys.modules, f"hatchling.{name}.interface", interface)
    return module("hatch_build")


def test_a_package_index_shows_links_into_the_repository_that_is_named(hatch_build: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text()
    text = hatch_build.long_description(readme, "https://host/mm32/blob/v1.2.3")
    assert LINK.findall(text) == []
    for shown, target in links(ROOT / "README.md"):
        assert f"[{shown}](https://host/mm32/blob/v1.2.3/{target.removeprefix('/')})" in text
    pictures = PICTURE.findall(readme)
    assert len(pictures) == 2, "a picture, light and dark"
    assert PICTURE.findall(text) == [f"https://host/mm32/raw/v1.2.3/{name}" for name in pictures]


def test_a_package_index_shows_paths_instead_of_links(hatch_build: ModuleType) -> None:
    text = hatch_build.long_description((ROOT / "README.md").read_text())
    assert LINK.findall(text) == []
    found = links(ROOT / "README.md")
    assert len(found) > 10
    for shown, target in found:
        assert shown in text
        assert target.lstrip("/") in text, "without its link, the text has to say where it leads"
    assert text.endswith("those of the source distribution.\n")
    assert "<picture" not in text
    assert "<img" not in text
    assert "on a large product: docs/pictures/speed-error-light.svg" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_are_not_run_together(page: Path) -> None:
    """A numbered item begins its line. Wrapping a page by a program once made one paragraph of a list."""
    assert re.findall(r"^[^|`\n]*\S +\d{1,2}\. \*\*", page.read_text(encoding="utf-8"), re.MULTILINE) == []


def test_the_site_has_the_records_that_its_pages_link_to() -> None:
    hooks = module("mkdocs_hooks")
    linked = 0
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = hooks.with_links_to_records(page.read_text(), page.name)
        assert "](/" not in text, "a link from the repository's root leads nowhere in the site"
        for name in re.findall(r"\]\(records/([^)]+)\)", text):
            assert (hooks.RESULTS / name).is_file()
            linked += 1
    assert linked >= 4
    nested = hooks.with_links_to_records("[x](/benchmarks/results/card/main.json)", "a/b.md")
    assert nested == "[x](../records/card/main.json)"


def test_the_site_shows_the_picture_for_its_own_theme() -> None:
    hooks = module("mkdocs_hooks")
    shown = 0
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = hooks.with_both_pictures(page.read_text())
        assert "<picture>" not in text
        shown += text.count("-light.svg#only-light)")
        assert text.count("-light.svg#only-light)") == text.count("-dark.svg#only-dark)") == text.count("#only-") / 2
    assert shown >= 9


def test_figures_in_tables_of_the_site_stay_on_one_line() -> None:
    whole = module("mkdocs_hooks").with_whole_figures
    assert whole("| `2 ms` | 2.5 ms | **4.30** (4.27–4.32) | 2.9e-04 |\n2.5 ms") == (
        '| `2 ms` | <span class="figure">2.5 ms</span> | **4.30** <span class="figure">(4.27–4.32)</span> | '
        '<span class="figure">2.9e-04</span> |\n2.5 ms'
    )
    assert whole("| 3 steps | 5 units |") == "| 3 steps | 5 units |"


def test_the_site_knows_its_repository() -> None:
    repository = module("mkdocs_hooks").repository
    assert repository('[project.urls]\nSource = "https://host/some/mm32/"\n', {}) == "https://host/some/mm32"
    workflow = {"GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "some/mm32"}
    assert repository("[project]\n", workflow) == "https://host/some/mm32"
    assert repository("[project]\n", {}) is None
