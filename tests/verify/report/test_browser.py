"""Reports as HTML in a headless Chromium: they open without a word on the console, show their pictures, sort, and fit a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm32.verify import html
from support import browser
from support.verify import reports as support

pytestmark = pytest.mark.browser

# Elements that stick out of the window, except those in boxes of their own that scroll.
OUTSIDE = """[...document.querySelectorAll("main *, #theme")]
  .filter((one) => !one.closest(".scroll > *, .code > *, svg > *"))
  .filter((one) => { const r = one.getBoundingClientRect();
    return r.width && (r.right > document.documentElement.clientWidth + 0.5 || r.left < -0.5); })
  .map((one) => one.outerHTML.slice(0, 80))"""
# Texts of charts that are cut off, or lie on one another.
CROWDED = """[...document.querySelectorAll("svg.chart")].flatMap((chart) => {
  const box = chart.getBoundingClientRect();
  const texts = [...chart.querySelectorAll("text")].map((one) => [one.textContent, one.getBoundingClientRect()]);
  const cut = texts.filter(([, r]) =>
    r.left < box.left - 8 || r.right > box.right + 8 || r.top < box.top - 2 || r.bottom > box.bottom + 2);
  const over = texts.filter(([, a], i) => texts.some(([, b], j) => i < j &&
    a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 3 && b.top < a.bottom - 3));
  return [...cut.map(([t]) => "cut: " + t), ...over.map(([t]) => "on another: " + t)];
})"""
LUMINANCE = """(() => { const c = getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number);
  return (c[0] + c[1] + c[2]) / 765; })()"""
PAGES = {
    "right": lambda: html.page(support.record(), support.source(60), support.source()),
    "tile": lambda: html.page(support.record("tile"), support.source(), support.source()),
    "row": lambda: html.page(support.record("row"), support.source(), support.source()),
    "nan": lambda: html.page(support.record("nan")),
    "shape": lambda: html.page(support.record("shape")),
    "crashed": lambda: html.page(support.crashed(), support.source(), support.source()),
    "hostile": lambda: html.page(support.hostile(support.record("tile")), "\n".join(support.HOSTILE), "x"),
    "enormous": lambda: html.page(support.enormous(), support.source(100_000), support.source(100_000)),
    "index": lambda: _index(),
}


def _index() -> str:
    seconds = iter(range(100, 0, -10))
    made = [
        support.record(seconds=next(seconds)),
        support.record("tile", seconds=next(seconds)),
        support.crashed(seconds=3),
    ]
    made += [support.record("nan", name="<img src=x>", seconds=7), support.record(seconds=1000)]
    made[4]["timing"]["speedup"] = 20.0
    return html.index(made, ["right.html", "tile.html", "crashed.html", "nan.html"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (where / f"{name}.html").write_text(make(), encoding="utf-8")
    return where


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_quietly_and_fits(chromium: browser.Browser, folder: Path, name: str) -> None:
    for width in (1280, 400):
        with chromium.open(folder / f"{name}.html", width, dark=width == 400) as page:
            assert page.errors == []
            assert page.requests == [], "something was asked for"
            assert page.value("document.title") != "run"
            assert page.value("document.querySelectorAll('main').length") == 1
            assert page.value("document.documentElement.scrollWidth") <= width
            assert page.value(OUTSIDE) == []
            assert page.value(CROWDED) == []
            assert page.value("getComputedStyle(document.querySelector('main')).fontFamily").startswith("system-ui")


def test_the_test_itself_sees_what_a_page_may_not_do(chromium: browser.Browser, folder: Path) -> None:
    """The policy would stop markup that had got through, and this test would see that."""
    evil = folder / "evil.html"
    inside = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\"><p style='width:900px'>w</p><main>"
    evil.write_text((folder / "right.html").read_text(encoding="utf-8").replace("<main>", inside), encoding="utf-8")
    with chromium.open(evil, 400) as page:
        said = " ".join(page.errors)
        assert page.value("document.title") != "run"
        assert "script-src" in said
        assert "img-src" in said
        assert "style-src" in said
    wide = folder / "wide.html"
    wide.write_text(
        '<meta name="viewport" content="width=device-width"><main><p style="width:900px">w</p></main>'
        '<svg class="chart" width="9"><text y="9">long</text></svg>'
    )
    with chromium.open(wide, 400) as page:
        assert len(page.value(OUTSIDE)) == 1
        assert page.value(CROWDED) == ["cut: long"]
        page.value("console.error('heard')")
        assert page.errors == ["console.error"]


def test_the_pictures_are_there(chromium: browser.Browser, folder: Path) -> None:
    with chromium.open(folder / "tile.html") as page:
        page.value("window.found = new Image(); found.src = document.querySelector('image').href.baseVal; 0")
        page.ask("Runtime.evaluate", expression="found.decode()", awaitPromise=True)
        assert page.value("[found.naturalWidth, found.naturalHeight]") == [96, 64]
        shown = page.value(
            "(() => { const r = document.querySelector('image').getBoundingClientRect(); return [r.width, r.height]; })()"
        )
        assert shown[0] > 200
        assert shown[1] == pytest.approx(shown[0] * 64 / 96, rel=0.01)
        bars = page.value(
            "[...document.querySelectorAll('rect.over')].map((one) => one.getBoundingClientRect().height)"
        )
        assert sum(height > 2 for height in bars) > 2
    with chromium.open(folder / "right.html") as page:
        assert page.value("document.querySelectorAll('circle.candidate').length") == 2 * 12
        assert page.value("getComputedStyle(document.querySelector('.line.candidate')).stroke") != "none"
        assert page.value("document.querySelector('.chart rect.band').getBoundingClientRect().width") > 200


def test_dark_and_light(chromium: browser.Browser, folder: Path) -> None:
    for dark in (False, True):
        with chromium.open(folder / "right.html", dark=dark) as page:
            assert (page.value(LUMINANCE) < 0.2) == dark
            page.value("document.getElementById('theme').click()")
            assert (page.value(LUMINANCE) < 0.2) != dark
            assert page.value("document.getElementById('theme').textContent") == ("Dark" if dark else "Light")
            page.value("document.getElementById('theme').click()")
            assert (page.value(LUMINANCE) < 0.2) == dark


ROWS = "[...document.querySelectorAll('.reports tbody tr')].filter((r) => r.getBoundingClientRect().height > 0)"


def test_the_table_sorts_and_filters(chromium: browser.Browser, folder: Path) -> None:
    def cells(column: int) -> list[str]:
        return page.value(f"{ROWS}.map((r) => r.cells[{column}].textContent)")

    def click(column: int) -> str:
        page.value(f"document.querySelectorAll('.reports th button')[{column}].click()")
        return page.value(f"document.querySelectorAll('.reports th')[{column}].getAttribute('aria-sort')")

    with chromium.open(folder / "index.html", 400) as page:
        assert cells(4) == ["100.0", "90.0", "3.0", "7.0", "1000.0"]
        assert click(4) == "ascending"
        assert cells(4) == ["3.0", "7.0", "90.0", "100.0", "1000.0"]
        assert click(4) == "descending"
        assert cells(4) == ["1000.0", "100.0", "90.0", "7.0", "3.0"]
        click(2)
        assert click(2) == "descending"
        assert cells(2)[0] == "20×"
        assert cells(2)[2:] == ["–"] * 3, "what has none is last"
        click(2)
        assert cells(2)[1:3] == ["20×", "–"]
        click(1)
        assert cells(1) == sorted(cells(1))
        assert page.value("document.querySelectorAll('th[aria-sort]').length") == 1
        page.value("document.querySelector('.filter [data-verdict=DIFFERENT]').click()")
        assert cells(1) == ["DIFFERENT"] * 2
        assert page.value("document.querySelector('[aria-pressed=true]').textContent") == "DIFFERENT 2"
        page.value("document.querySelector('.filter [data-verdict=\"\"]').click()")
        assert len(cells(1)) == 5
        link = page.value("[...document.querySelectorAll('a')].find((a) => a.textContent.startsWith('<img')).href")
        assert link == (folder / "nan.html").as_uri()
        assert page.errors == []


def test_a_phone_shows_who_is_how_much_faster(chromium: browser.Browser, tmp_path: Path) -> None:
    """Name, verdict and speedup without scrolling, names broken between their words, and a shade where the table goes on."""
    long = "level_1_problem_12_sample_0_kernel.py"
    made = [support.record(name=long), support.record("tile", name="w_stale_from_the_third_call_on.py")]
    inconclusive = support.record(name="x" * 200)
    inconclusive["verdict"] = "INCONCLUSIVE"
    (tmp_path / "index.html").write_text(html.index([*made, inconclusive]), encoding="utf-8")
    with chromium.open(tmp_path / "index.html", 400) as page:
        box, content = page.value(
            "(() => { const s = document.querySelector('.scroll'); return [s.clientWidth, s.scrollWidth]; })()"
        )
        assert content > box, "nothing scrolls: this test shows nothing"
        rows = "[...document.querySelectorAll('.reports tr')]"
        right = page.value(f"Math.max(...{rows}.map((row) => row.cells[2].getBoundingClientRect().right))")
        assert right <= 400
        assert page.value("document.querySelectorAll('.reports th')[2].textContent") == "speedup"
        lines = page.value(
            """(() => { const name = document.querySelector(".reports td.t bdi"), lines = {};
              for (let n, walk = document.createTreeWalker(name, NodeFilter.SHOW_TEXT); (n = walk.nextNode());)
                for (let i = 0; i < n.length; i++) {
                  const r = document.createRange(); r.setStart(n, i); r.setEnd(n, i + 1);
                  const top = Math.round(r.getBoundingClientRect().top);
                  lines[top] = (lines[top] || "") + n.data[i]; }
              return Object.entries(lines).sort((a, b) => a[0] - b[0]).map((one) => one[1]); })()"""
        )
        assert "".join(lines) == long
        assert len(lines) > 1
        assert all(line.endswith("_") for line in lines[:-1]), lines
        assert "gradient" in page.value("getComputedStyle(document.querySelector('.scroll')).backgroundImage")
        assert "local" in page.value("getComputedStyle(document.querySelector('.scroll')).backgroundAttachment")
        page.screenshot(tmp_path / "phone.png")


def test_without_scripts_it_is_a_plain_table(chromium: browser.Browser, folder: Path) -> None:
    with chromium.open(folder / "index.html", script=False) as page:
        assert page.value(f"{ROWS}.length") == 5
        assert page.value("document.querySelectorAll('th button').length") == 0
        assert page.value("document.querySelector('.filter').getBoundingClientRect().height") == 0
        assert page.value("document.getElementById('theme').getBoundingClientRect().height") == 0


def test_text_of_a_source_stays_in_its_order(chromium: browser.Browser, folder: Path) -> None:
    """Hebrew letters, which a browser would show from right to left."""
    code = """(() => { const walk = document.createTreeWalker(document.querySelector("#candidate"), NodeFilter.SHOW_TEXT);
      for (let n; (n = walk.nextNode());) { const i = n.data.indexOf("אבג"); if (i < 0) continue;
        return [0, 1, 2].map((k) => { const r = document.createRange(); r.setStart(n, i + k); r.setEnd(n, i + k + 1);
          return r.getBoundingClientRect().left; }); } })()"""
    with chromium.open(folder / "tile.html") as page:
        places = page.value(code)
    assert places == sorted(places)
    assert len(set(places)) == 3


def test_it_prints(chromium: browser.Browser, folder: Path) -> None:
    with chromium.open(folder / "right.html", 700, dark=True) as page:  # about an A4 page without its margins
        page.value("document.getElementById('theme').click(); document.getElementById('theme').click()")
        assert page.pdf().startswith(b"%PDF")
        page.ask("Emulation.setEmulatedMedia", media="print")
        assert page.value("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert page.value("getComputedStyle(document.querySelector('.code')).maxHeight") == "none"
        assert page.value(LUMINANCE) == 1
        assert page.value("document.documentElement.scrollWidth") <= 700
