"""The table of many reports: one file with a row for each report, which links to its page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from mm32.verify.verdict import BASELINE_NAMES, Verdict

from .parts import GOOD, NAMES, base, closeness, judgements
from .safe import attribute, breakable, document, escaped, figure, local, number, text

SIZE = 1_700_000  # the most bytes of all rows, about
REASON = 400  # the most characters of a reason that are shown, where there are few reports
# The first three fit a narrow window; what is long comes last. The bool says whether a column has figures.
COLUMNS = {
    "name": False,
    "verdict": False,
    "speedup": True,
    "interval": True,
    "seconds": True,
    "error : bound": True,
    "reason": False,
}


def index(records: Iterable[dict[str, Any]], links: Iterable[str | None] = (), title: str = "mm32 verify") -> str:
    """Return many reports as one HTML file: a table that sorts by any column and can show one verdict alone. Where scripts are
    off, it is a plain table in the order of `records`.

    Args:
        records: `Report.as_dict()` of each, or what was read from its JSON; looked at one by one and not kept. If a record has
            a "name", that is shown, or else the candidate's file name with the reference's.
        links: for each record, in the same order, the path of its page relative to this file, or None. May be shorter.
        title: the page's title.

    The file has at most about 2 MB: if needed, reasons are shortened, then rows are left out, and the page says so.
    """
    rows: list[tuple[Any, ...]] = []
    left_out = 0
    used = 0
    beaten: Counter[str] = Counter()
    further: Counter[str] = Counter()
    for record, link in _pairs(records, links):
        row = _summary(record, link)
        if record.get("timing"):
            beaten[str(record.get("baseline") or "eager")] += 1
        others = dict(record.get("baselines") or {}).items()  # one that failed has no speedup
        further.update(str(name) for name, one in others if isinstance(one, dict) and "speedup" in one)
        used += len(_row(row, 60).encode())
        if used > SIZE:
            left_out += 1
        else:
            rows.append(row)
    reason = REASON
    while reason > 60 and sum(len(_row(row, reason).encode()) for row in rows) > SIZE:
        reason //= 2
    counts = Counter(row[1] for row in rows)
    buttons = f'<button type="button" data-verdict="">all {len(rows)}</button>' + "".join(
        f'<button type="button" data-verdict={attribute(name)}>{escaped(_words(name))} {counts[name]}</button>'
        for name in [*(v.name for v in Verdict), *sorted(counts.keys() - {v.name for v in Verdict})]
        if counts[name]
    )
    said = ", ".join(f"{counts[v.name]} {v.value}" for v in Verdict if counts[v.name])
    notes = [f"{left_out} more reports are left out, for the size of this file."] if left_out else []
    notes += ["Reasons are shortened, for the size of this file."] if reason < REASON else []
    shown = "".join(f'<p class="soft">{note}</p>' for note in notes)
    names = "".join(f'<th scope="col"{" class=n" if figures else ""}>{name}</th>' for name, figures in COLUMNS.items())
    return document(
        title,
        f"<main>\n<h1>{text(title, 200)}: {len(rows) + left_out} reports</h1>\n<p>{said}.</p>{_than(beaten, further)}{shown}\n"
        f'<div class="filter" role="group" aria-label="Show one verdict" hidden>{buttons}</div>\n'
        f'<div class="scroll" tabindex="0"><table class="reports"><thead><tr>{names}</tr></thead><tbody>\n'
        f"{''.join(_row(row, reason) for row in rows)}</tbody></table></div>\n</main>",
        ("theme.js", "table.js"),
    )


def _than(beaten: Counter[str], further: Counter[str]) -> str:
    """Say what the speedups are over: the baselines, with the number of reports of each where they differ, and the other
    baselines that were timed too."""

    def names(of: Counter[str]) -> str:
        counts = [f" ({count})" if len(beaten) > 1 and of is beaten else "" for _, count in of.most_common(NAMES)]
        known = [BASELINE_NAMES.get(name) or text(name, 60) for name, _ in of.most_common(NAMES)]
        return ", ".join(f"{name}{count}" for name, count in zip(known, counts, strict=True))

    if not beaten:
        return ""
    also = f" Also timed: {names(further)}, on each report's page." if further else ""
    return f"<p>Speedups are over {names(beaten)}, on the same data.{also}</p>"


def _pairs(
    records: Iterable[dict[str, Any]], links: Iterable[str | None]
) -> Iterable[tuple[dict[str, Any], str | None]]:
    end = object()
    for record, link in zip_longest(records, links, fillvalue=end):
        if record is end:
            raise ValueError("there are more links than records")
        yield record, None if link is end else link  # type: ignore[misc]


def _summary(record: dict[str, Any], link: str | None) -> tuple[Any, ...]:
    """What a row shows: name, verdict, reason, speedup, interval, error over bound, seconds, link."""
    ratios = [ratio for _, judged in judgements(record) if (ratio := closeness(judged)) == ratio]
    timing = record.get("timing") or {}
    low, high = (number(v) for v in timing.get("interval") or (math.nan, math.nan))
    name = str(record.get("name") or _short(record))[:200]
    return (
        name,
        str(record.get("verdict"))[:60],
        str(record.get("reason") or "")[: REASON + 1],
        number(timing.get("speedup", math.nan)),
        (low, high),
        max(ratios, default=math.nan),
        number(record.get("seconds", math.nan)),
        link,
    )


def _short(record: dict[str, Any]) -> str:
    """Both scripts' names; the candidate's with its folder, which often tells more."""
    return f"{'/'.join(str(record.get('candidate')).split('/')[-2:])} : {base(record.get('reference'))}"


def _row(row: tuple[Any, ...], reason: int) -> str:
    name, verdict, why, speedup, (low, high), ratio, seconds, link = row
    shown = breakable(name, 120)
    if link:
        shown = f"<a href={local(link)}>{shown}</a>"
    kind = next((k for v, k in GOOD.items() if v.name == verdict), "bad")
    interval = f"{figure(low)} to {figure(high)}" if low == low else "–"
    return (
        f'<tr data-verdict={attribute(verdict)}><td class="t">{shown}</td>'
        f'<td class="s"><span class="{kind}">{escaped(_words(verdict))}</span></td>'
        f'<td class="n" data-v="{_plain(speedup)}">{_or_none(speedup, "×")}</td>'
        f'<td class="n" data-v="{_plain(low)}">{interval}</td>'
        f'<td class="n" data-v="{_plain(seconds)}">{f"{seconds:.1f}" if seconds == seconds else "–"}</td>'
        f'<td class="n" data-v="{_plain(ratio)}">{_or_none(ratio)}</td>'
        f'<td class="w">{text(why, reason) if why else ""}</td></tr>\n'
    )


def _or_none(value: float, unit: str = "") -> str:
    return figure(value) + unit if value == value else "–"


def _words(name: str) -> str:
    return Verdict[name].value if name in Verdict.__members__ else name


def _plain(value: float) -> str:
    """Return a number in the form that JavaScript's Number reads."""
    return str(value).replace("inf", "Infinity")
