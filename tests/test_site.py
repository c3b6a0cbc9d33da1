"""The site in a headless Chromium, 1280 and 400 pixels wide: nothing is cut, missing, or fetched from elsewhere; the search and
the theme switch work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import browser, pages

pytestmark = pytest.mark.browser
SHOWN = """[...document.querySelectorAll("img[src*='speed-error']")]
  .filter((one) => getComputedStyle(one).display !== "none").map((one) => one.src.replace(/.*-(\\w+)\\.svg.*/, "$1"))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(needed, reason="no mkdocs here: make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    pages.build(folder)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with pages.served(site) as at:
        yield at


def until(page: browser.Page, code: str) -> object:
    """Return the value of a JavaScript expression once it is true, or False after 20 seconds."""
    end = time.monotonic() + 20
    while not (found := page.value(code)):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_pages_open_quietly_and_fit(every: int, chromium: browser.Browser, site: Path, address: str) -> None:
    """The test opens the first page and each fourth after it, and with make test-all every page."""
    names = pages.names(site)
    assert {"./", "api/", "comparison/", "kernels/"} <= set(names)
    names.sort(key=lambda name: name != "./")
    wrong = []
    for name in names[::every]:
        with chromium.open(address + name) as page:
            for width, dark in pages.WIDTHS.items():
                page.resize(width, dark=dark)
                found = pages.faults(page, address, whole=name == "./" and width >= 1280)
                wrong += [f"{name} at {width}: {fault}" for fault in found]
    assert wrong == []


def test_drawings_are_not_crowded(chromium: browser.Browser, site: Path) -> None:
    drawings = sorted((site / "pictures").glob("*.svg"))
    assert len(drawings) >= 18
    for path in drawings:
        with chromium.open(path, 660) as page:
            assert pages.drawing_faults(page) == [], path.name
            assert page.value("document.querySelectorAll('text').length") > 5


def test_the_test_itself_sees_what_is_wrong(chromium: browser.Browser, tmp_path: Path) -> None:
    long = "x" * 200
    (tmp_path / "wrong.html").write_text(
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><div class="md-content">'
        f'<div style="overflow:hidden"><table><tr><td>{long}</table></div><pre style="overflow:clip">{long}</pre>'
        f'<div style="overflow:auto"><table><tr><td>{long}</table></div><pre><code style="display:block;overflow:auto">{long}'
        '</code></pre><img src="missing.svg">'
        f'<table style="width:9px"><tr><td style="width:9px">{"a b " * 30}</table><p style="width:900px">wide</p></div>'
        "<script>console.error('heard')</script>"
    )
    (tmp_path / "wrong.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="99" height="40"><text y="20">over</text><text y="20">over</text>'
        '<text x="90" y="38">out of it</text></svg>'
    )
    with pages.served(tmp_path) as address:
        with chromium.open(f"{address}wrong.html", 400) as page:
            found = pages.faults(page, address, whole=True)
            assert "code scrolls" not in " ".join(pages.faults(page, address))
        kinds = [fault.partition(":")[0] for fault in found]
        assert kinds.count("cut") == 1, found
        assert kinds.count("cut inside") == 1
        assert kinds.count("code scrolls") == 2, "one that is clipped, one in a box that scrolls"
        assert "the page scrolls sideways" in found
        assert {"sticks out", "no image", "narrow cell", "console"} <= set(kinds)
        with chromium.open(f"{address}wrong.html", 400) as page:
            assert [f for f in pages.faults(page, "http://elsewhere/") if f.startswith("asks for")]
        with chromium.open(tmp_path / "wrong.svg") as page:
            assert pages.drawing_faults(page) == ["cut: out of it", "on another: over"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_theme_switch_changes_the_pictures(chromium: browser.Browser, address: str, dark: bool) -> None:
    with chromium.open(address) as page:
        page.value("localStorage.clear()")  # forgets the switch's position
    with chromium.open(address, dark=dark) as page:
        assert page.value(SHOWN) == ["dark" if dark else "light"], "the system's colours at first"
        for theme in ("light", "dark"):  # the switch has three positions: the system's, light, dark
            page.value("document.querySelector('.md-header__option label:not([hidden])').click()")
            assert until(page, f"({SHOWN}).join() === '{theme}'"), theme


def test_the_search_finds_a_word_of_the_text(chromium: browser.Browser, address: str) -> None:
    with chromium.open(address) as page:
        field = "document.querySelector('.md-search__input')"
        page.value(f"{field}.focus(); {field}.value = 'multiprocessors'; {field}.dispatchEvent(new Event('keyup')); 0")
        assert until(page, "document.querySelector('.md-search-result__link')?.href"), "the search did not answer"
        found = page.value("[...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)")
        assert any("/kernels/" in url for url in found)
        assert page.errors == []


@pytest.mark.slow
def test_links_to_the_repository_appear_where_it_is_known(
    chromium: browser.Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("material", reason="no mkdocs here: make docs installs it")
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://host.invalid")
    monkeypatch.setenv("GITHUB_REPOSITORY", "some/mm32")
    pages.build(tmp_path)
    with pages.served(tmp_path) as address, chromium.open(f"{address}kernels/") as page:
        assert pages.faults(page, address) == []
        links = page.value("[...document.querySelectorAll('a')].map((one) => one.href)")
        assert "https://host.invalid/some/mm32" in links
        assert "https://host.invalid/some/mm32/edit/main/docs/kernels.md" in links
