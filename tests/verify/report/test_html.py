"""Reports as HTML, without a browser: what is in them, that nothing hostile becomes markup, and how large they get."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import zlib
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import mm32
from mm32.verify import Verdict, html
from mm32.verify.html import charts, heat, safe
from mm32.verify.judging import picture
from support.verify import reports as support

MOST = 2_000_000  # bytes of a page
VOID = {"meta", "br", "wbr", "img", "input", "link"}
TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "section",
        "nav",
        "script",
        "h1",
        "h2",
        "h3",
        "p",
        "div",
        "span",
    ),
    *(
        "a",
        "b",
        "i",
        "strong",
        "small",
        "bdi",
        "wbr",
        "button",
        "dl",
        "dt",
        "dd",
        "ul",
        "li",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
    ),
    *(
        "td",
        "figure",
        "figcaption",
        "svg",
        "rect",
        "path",
        "text",
        "circle",
        "image",
        "pre",
        "code",
        "details",
        "summary",
    ),
}


class Parsed(HTMLParser):
    """A page's elements, attributes and texts, as a parser sees them; every element has to be closed where it should."""

    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    def text(self, inside: str = "main") -> str:
        return "".join(text for path, text in self.texts if inside in path)

    def of(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag and wanted.items() <= attributes.items()]


def check(page: str) -> Parsed:
    """Check what holds for every page: known elements, no handler, nothing from outside, only printable text.

    Its policy has the hashes of its own content. Return the parsed page.
    """
    parsed = Parsed(page)
    assert {tag for tag, _ in parsed.tags} <= TAGS
    for _, attributes in parsed.tags:
        assert not {
            name for name in attributes if name.startswith("on") or name in ("style", "src", "srcdoc", "action")
        }
        assert re.match(r"#|\./|data:image/png;base64,[A-Za-z0-9+/=]+$", attributes.get("href", "#"))
    assert page.isascii() or all(c == "\n" or c.isprintable() for c in page)
    (policy,) = (a["content"] for a in parsed.of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    for kind in ("style", "script"):
        inside = ["".join(text for path, text in parsed.texts if path[-1:] == (kind,))]
        if kind == "script":
            inside = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
        hashes = " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in inside
        )
        assert f"{kind}-src {hashes};" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert len(page.encode()) < MOST
    return parsed


def test_a_page_of_a_right_and_fast_one() -> None:
    page = html.page(support.record(), "import a\n\nx = 1\n", "import b\n")
    parsed = check(page)
    main = parsed.text()
    first = main[: main.index("Candidate")]
    assert first.strip().startswith("SAME, FASTER ")
    assert "× as fast as reference.py (its class Model in eager torch " in first
    order = (
        "Figures",
        "Where the errors are",
        "Times, round by round",
        "Probes",
        "Trials",
        "Could this check have failed?",
    )
    order += (
        "Environment",
        "Isolation",
        "Notes and what was left out",
        "The candidate's source",
        "The reference's source",
    )
    titles = [title for path, title in parsed.texts if path[-1:] == ("h2",)]
    assert len(titles) == len(order)
    assert all(title.startswith(said) for title, said in zip(titles, order, strict=True))
    assert "trial 2, seed 2" in main
    assert "operands rounded to TF32" in main
    assert [a["data-n"] for a in parsed.of("span") if "data-n" in a] == ["1", "2", "3", "1"]
    assert all(a.get("aria-label") or a.get("aria-hidden") for a in parsed.of("svg"))
    assert len(parsed.of("svg", role="img")) == 6  # two bars, the map, the histogram, both charts of times
    assert parsed.of("image")
    assert "\u202e" not in page


def test_of_json_kept_earlier_the_page_is_the_same() -> None:
    made = support.record("tile")
    assert html.page(json.loads(json.dumps(made))) == html.page(made)
    assert mm32.verify.html.page is html.page


@pytest.mark.parametrize("name", support.WRONG)
def test_a_page_of_a_wrong_one_says_where(name: str) -> None:
    made = support.record(name)
    parsed = check(html.page(made))
    main = parsed.text()
    assert main.strip().startswith("DIFFERENT from reference.py")
    says = {
        "tile": "256 of 6144 entries (4.17%) are beyond the bound, the worst",
        "row": "96 of 6144 entries",
        "nan": "1 is NaN or infinite where the reference is not, or the other way round. In row 5, column 7 "
        "(1 of 6144 cells).",
        "shape": "Not drawn: its shape or type is not the reference's.",
    }[name]
    assert says in main
    if name == "tile":
        assert "In rows 16 to 31, columns 40 to 55 (256 of 6144 cells)." in main
        assert "times it" in main
    assert "Not reached, or not kept: " in main
    assert "Times, round by round; Probes" in main


def test_a_page_of_one_that_raised_marks_the_line() -> None:
    page = html.page(support.crashed(), "import torch\n\nraise\n", "import torch\n\nraise\n")
    parsed = check(page)
    (hit,) = [a for a in parsed.of("span") if a.get("class") == "hit"]
    assert hit["data-n"] == "3"
    assert page.index("class=hit") > page.index('id="candidate"')
    assert parsed.text().strip().startswith("CRASHED beside reference.py")
    for said in ("RuntimeError: no", "a hint", "Traceback:", "one\ntwo"):
        assert said in parsed.text()
    other = html.page(support.crashed(verdict="REFERENCE_FAILED"))
    assert "The reference's error" in check(other).text()


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_first_line(verdict: Verdict) -> None:
    made = support.record() if verdict.same else support.crashed()
    main = check(html.page({**made, "verdict": verdict.name, "left_out": ["1 of 3 trials"]})).text().strip()
    assert main.startswith(verdict.value)
    assert "reference.py" in main.split("\n")[0]
    assert ("left out: 1 of 3 trials" in main.split("\n")[0]) == verdict.same


@pytest.mark.parametrize(
    "make", [support.record, lambda: support.record("tile"), lambda: support.record("nan"), support.crashed]
)
def test_no_text_of_a_record_becomes_markup(make: Any) -> None:
    plain, evil = make(), support.hostile(make())
    evil["trials"] = evil["trials"] + [{"reason": one, "data": one, "seed": one} for one in support.HOSTILE]
    source = "\n".join(support.HOSTILE)
    parsed = check(html.page(evil, source, source))
    for tag in ("h1", "script", "style", "title", "main", "image"):
        assert len(parsed.of(tag)) == len(check(html.page(plain, "x", "x")).of(tag)), tag
    shown = parsed.text()
    for one in support.HOSTILE[:6]:
        assert one in shown, "shown as it was written"
    for code in (r"\u202e", r"\x1b", r"\ud800", r"\u2028", r"\x00", r"\ufeff"):
        assert code in shown
    assert check(html.index([evil] * 3, ["a.html"] * 3, title=source)).of("a")
    html.page(evil, source, source).encode()


def test_groups_of_processes_are_told() -> None:
    groups = [{"speedup": 1.0512, "control": 1.0}, {"speedup": 1.0634, "control": 0.99}]
    timing = {**support.timed(ratio=1.05), "groups": groups}
    main = check(html.page(support.record(timing=timing))).text()
    assert "2 groups of processes" in main
    assert "with the ratios 1.05, 1.06" in main


def test_windows_of_one_call_are_told() -> None:
    says = {"says": "agrees", "speedup": 1.7, "interval": [1.6, 1.8], "saved_s": 1e-3, "wanted_s": 5e-4}
    main = check(html.page(support.record(timing={**support.timed(), "one_call": says}))).text()
    assert "In windows of one call it is 1.7" in main
    assert "would bear it out: agrees." in main


def test_other_ways_of_running_the_reference() -> None:
    """Records of batches have these besides "timing"."""
    others = {
        "compile": {**support.timed(ratio=1.5), "verdict": "FASTER", "note": ""},
        "tf32": {**support.timed(ratio=0.5), "verdict": "SLOWER", "note": "<noisy>"},
        "new": {"failed": "<no>"},
    }
    main = check(html.page(support.record(baseline="eager", baselines=others))).text()
    first = main.strip().split("\n")[0]
    assert "reference.py (its class Model in eager torch " in first
    assert re.search(r", 1\.\d+× torch\.compile, 0\.\d+× torch in TF32$", first)
    assert "SLOWER: <noisy>" in main
    assert "not timed: <no>" in main


def test_a_page_leads_back_to_its_index() -> None:
    parsed = check(html.page(support.record(), up='../a b"/index.html'))
    assert parsed.of("a")[0]["href"] == "./../a%20b%22/index.html"


def test_marks_of_text_that_is_not_printable_are_elements_of_ours() -> None:
    assert safe.text("a\u202eb<") == "<bdi>a<i>\\u202e</i>b&lt;</bdi>"
    assert safe.text("x" * 20, 5) == "<bdi>xxxxx… (20 characters)</bdi>"
    assert safe.attribute('"\n<') == '"&quot;\\n&lt;"'
    assert len(safe.text("\u202e" * 1000, 1000)) < 20_000


def test_a_page_stays_small_and_says_what_was_shortened() -> None:
    long = support.source(100_000)
    made = support.enormous()
    page = html.page(made, long, long)
    parsed = check(page)
    assert "lines left out …" in page
    numbers = [int(a["data-n"]) for a in parsed.of("span") if "data-n" in a]
    assert numbers[0] == 1
    assert 100_000 in numbers
    assert "the last" in parsed.text(), "the trial that differs"
    assert "are left out here." in parsed.text()
    assert "Of 200000 rounds every 1000th is drawn." in parsed.text()
    one_line = html.page(support.record(), "x" * 5_000_000, "<" * 5_000_000)
    assert len(one_line) < 100_000


def test_sources_are_read_as_bytes_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"a = '\xff'\r\n\x00" + b"x" * (3 << 20))
    assert html.read(path).startswith("a = '\ufffd'\r\n\x00x")
    assert len(html.read(path)) < safe.READ + 100
    assert html.read(path).endswith("\n# ... what comes after 2097152 bytes was not read")
    path.write_text("x\n")
    assert html.read(str(path)) == "x\n"
    assert "could not be read" in html.read(tmp_path / "none.py")


def test_a_source_keeps_its_beginning_and_its_end() -> None:
    made, left_out = safe.lines("\n".join(f"line {i}" for i in range(1, 1001)), 4000, mark=2)
    shown = [int(n) for n in re.findall(r'data-n="(\d+)"', made)]
    assert left_out == 1000 - len(shown)
    gap = next(i for i, (a, b) in enumerate(pairwise(shown)) if b != a + 1)
    assert shown[: gap + 1] == list(range(1, gap + 2))
    assert shown[gap + 1 :] == list(range(shown[gap + 1], 1001))
    assert f"… {left_out} of 1000 lines left out …" in made
    assert 'data-n="2" class=hit' in made
    assert safe.lines("", 100)[1] == 0


def test_records_of_other_schemas_are_refused() -> None:
    with pytest.raises(ValueError, match=r"this one's schema is 'mm32\.verify/9'"):
        html.page({**support.record(), "schema": "mm32.verify/9"})
    with pytest.raises(ValueError, match=r"this one's is 'BEST'$"):
        html.page({**support.record(), "verdict": "BEST"})
    older = support.record("tile", schema="mm32.verify/2")
    del older["picture"]
    assert "Not reached, or not kept: Where the errors are" in check(html.page(older)).text()


# ---------------------------------------------------------------------------------------------------------- pictures


def pixels(png: bytes) -> tuple[int, int, list[list[tuple[int, ...]]]]:
    """Return a palette image's width, its height, and its colours row by row, after checking its checksums."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    parts, at = {}, 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        name, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size]) == (zlib.crc32(name + data),)
        parts[name], at = data, at + 12 + size
    across, down = struct.unpack(">II", parts[b"IHDR"][:8])
    raw, palette = zlib.decompress(parts[b"IDAT"]), parts[b"PLTE"]
    rows = [raw[i * (across + 1) + 1 : (i + 1) * (across + 1)] for i in range(down)]
    return across, down, [[tuple(palette[3 * c : 3 * c + 3]) for c in row] for row in rows]


def test_the_map_is_red_where_entries_are_wrong_and_blue_elsewhere() -> None:
    (drawn,) = support.record("tile")["picture"]["outputs"]
    across, down, rows = pixels(heat.Map(drawn).png())
    assert (across, down) == (96, 64)
    for i, row in enumerate(rows):
        for j, (red, _, blue) in enumerate(row):
            wrong = 16 <= i < 32 and 40 <= j < 56
            assert (red > blue) == wrong


def test_the_colours_of_a_map_tell_the_bound_from_what_is_beyond() -> None:
    (drawn,) = support.record()["picture"]["outputs"]
    found = heat.Map(drawn)
    assert found.color(0) == heat.NONE
    assert found.color(picture.DIFFERS) == heat.ODD
    assert found.color(picture.BOUND) == heat.WITHIN[-1]
    assert found.color(picture.BOUND + 1) == heat.BEYOND[0]
    assert found.beyond() == ""


@pytest.mark.parametrize(
    "broken",
    [{"map": "!"}, {"map": "AAAA"}, {"cells": [10**6, 10**6]}, {"cells": [0, 0]}, {"cells": "ab"}, {"shape": None}],
)
def test_what_is_no_map_is_not_drawn(broken: dict[str, Any]) -> None:
    made = support.record()
    made["picture"]["outputs"][0] |= broken
    assert "Not drawn: " in check(html.page(made)).text()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 99, 100, 1000, 12345, 10**7])
def test_ticks_are_few_begin_at_the_first_and_end_at_the_last(size: int) -> None:
    ticks = heat._ticks(size, 5)
    assert ticks[0] == 0
    assert ticks[-1] == size - 1
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= 7


def test_charts_of_odd_numbers_are_drawn() -> None:
    inf, nan = float("inf"), float("nan")
    for values in ([1.0], [1e-9, 1.0], [2.0] * 5, [nan, 1.0], [inf, 1.0], [0.0, 1.0]):
        for made in (charts.times({"candidate": values}), charts.ratios(values, 0.5, 2.0, 1.0, 1.1)):
            assert "nan" not in made
            assert "inf" not in made.replace("infin", "")
    assert charts.times({"candidate": [nan]}) == charts.ratios([nan], nan, nan, nan, nan) == ""
    assert "nan" not in charts.ratios([1.0, 2.0], nan, inf, 1.0, inf).split("aria-label")[0]
    assert 'class="odd"' in charts.histogram(-32, [0] * 65, None, (0, 0), 3)
    assert 'class="over"' in charts.bar(2.0, "") + charts.bar(nan, "")


# ---------------------------------------------------------------------------------------------------------- tables


def test_an_index_has_a_row_for_each_report_and_links() -> None:
    made = [
        support.record(),
        support.record("tile", name="a tile"),
        support.crashed(),
        {"verdict": "SKIPPED", "reason": "new"},
    ]
    links = ["single/0.html", "javascript:alert(1)", None]
    parsed = check(html.index(iter(made), iter(links), "nightly"))
    rows = [a["data-verdict"] for a in parsed.of("tr") if "data-verdict" in a]
    assert rows == ["FASTER", "DIFFERENT", "CRASHED", "SKIPPED"]
    assert [a["href"] for a in parsed.of("a")] == ["./single/0.html", "./javascript%3Aalert%281%29"]
    main = parsed.text()
    assert "nightly: 4 reports" in main
    assert "1 SAME, FASTER, 1 DIFFERENT, 1 CRASHED." in main
    for said in ("you/candidate.py : reference.py", "a tile", "it raised", "SKIPPED"):
        assert said in main
    values = [a["data-v"] for a in parsed.of("td") if "data-v" in a]
    assert float(values[0]) == pytest.approx(made[0]["timing"]["speedup"])
    assert values[4:6] == ["nan", "nan"]
    assert float(values[7]) > 1
    heads = list(parsed.of("th"))
    assert [a.get("class") for a in heads] == [None, None, "n", "n", "n", "n", None]
    assert html.index([]).count("<tr") == 1
    with pytest.raises(ValueError, match="more links than records"):
        html.index(made, ["x"] * 9)


def test_an_index_has_its_figures_before_the_reasons_and_says_faster_than_what() -> None:
    columns = ["name", "verdict", "speedup", "interval", "seconds", "error : bound", "reason"]
    made = html.index([support.record(name="level_1_sample/a_b.py", reason="why", seconds=5.5)])
    assert re.findall(r"<th [^>]*>([^<]*)</th>", made) == columns
    (row,) = re.findall(r"<tr data-verdict.*</tr>", made)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row)
    assert cells[0] == "<bdi>level_<wbr>1_<wbr>sample/<wbr>a_<wbr>b.py</bdi>"
    assert (cells[2][-1], cells[4], cells[6]) == ("×", "5.5", "<bdi>why</bdi>")
    assert "Speedups are over eager torch, on the same data." in check(made).text()
    of_compile = support.record(baseline="compile", baselines={"eager": {"failed": "no"}, "tf32": {"speedup": 0.5}})
    said = check(html.index([support.record(), of_compile, support.crashed(baseline="tf32")])).text()
    assert "Speedups are over eager torch (1), torch.compile (1), on the same data." in said
    assert "Also timed: torch in TF32, on each report's page." in said
    assert "Speedups are over" not in html.index([support.crashed()])
    hostile = support.record(baseline="<b>x</b>", baselines={"<script>": {"speedup": 1}})
    assert "<b>x" not in html.index([hostile])
    check(html.index([hostile]))


def test_an_index_stays_small_and_says_what_is_left_out() -> None:
    one = support.record("tile", reason="<&" * 300)
    one = {k: v for k, v in one.items() if k != "picture"}
    some = check(html.index((one for _ in range(2000)), ["x.html"] * 2000)).text()
    assert "Reasons are shortened" in some
    assert "left out" not in some
    many = check(html.index(one for _ in range(20_000)))
    shown = len([a for a in many.of("tr") if "data-verdict" in a])
    assert 2000 < shown < 20_000
    assert f"{20_000 - shown} more reports are left out" in many.text()
    assert "20000 reports" in many.text()
