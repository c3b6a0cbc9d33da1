"""The results of a batch: a row for each candidate, fast_p, the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..text import one_line, shortened
from ..verdict import Verdict

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
WHY, NAME = 100, 200  # the most characters of a reason, and of a name, in the table
EXIT_RULES = ("worst", "tool", "none")


@dataclass(frozen=True)
class Row:
    """The part of a record that the table needs; the record itself may be large."""

    id: str
    name: str
    verdict: Verdict
    reason: str
    seconds: float
    speedup: float | None = None  # over the baseline that decides the verdict
    low: float | None = None
    high: float | None = None
    baseline: str = "eager"
    others: dict[str, float] = field(default_factory=dict)  # speedups over further baselines
    place: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, record: dict[str, Any]) -> Row:
        report = record["report"]
        timing = report.get("timing") or {}
        low, high = (float(end) for end in timing["interval"]) if timing else (None, None)
        return cls(
            record["id"],
            record["name"],
            Verdict[report["verdict"]],
            report["reason"],
            float(report["seconds"]),
            float(timing["speedup"]) if timing else None,
            low,
            high,
            report.get("baseline", "eager"),
            {n: float(t["speedup"]) for n, t in report.get("baselines", {}).items() if "speedup" in t},
            record["place"],
        )

    @property
    def believed(self) -> float:
        """The speedup that fast_p counts: 0 where there is none, or the times are suspect."""
        return self.speedup if self.speedup is not None and self.verdict is not Verdict.SUSPECT else 0.0


def fast_p(rows: Sequence[Row], p: float, of: int | None = None) -> float:
    """Return the share of tasks whose candidate is correct and more than `p` times as fast, as KernelBench defines it; fast_0 is
    the share of correct ones. `of`: how many tasks there are, where some have no candidate."""
    count = len(rows) if of is None else of
    return sum(row.verdict.same and (p == 0 or row.believed > p) for row in rows) / count if count else 0.0


def proven_p(rows: Sequence[Row], p: float, of: int | None = None) -> float:
    """Return the share of tasks whose candidate is FASTER, with its whole interval above `p`. `of`: as for `fast_p`."""
    count = len(rows) if of is None else of
    found = sum(row.verdict is Verdict.FASTER and row.low is not None and row.low > p for row in rows)
    return found / count if count else 0.0


def exit_code(rows: Sequence[Row], rule: str) -> int:
    """Return the exit code by `rule`: of the worst verdict; of the worst that says nothing of a candidate ("tool"); or 0."""
    order = list(Verdict)
    counted = [row.verdict for row in rows if rule == "worst" or (rule == "tool" and not row.verdict.of_candidate)]
    return max(counted, key=order.index).exit_code if counted else 0


def lines(rows: Sequence[Row], of: int | None = None, whole: object = None) -> list[str]:
    """Return the lines of the table and of the summary. A candidate's text takes one line, and never stands at its beginning.
    `whole`: where to find in full the reasons that are too long for the table."""
    cells = [["candidate", "verdict", "speedup", "interval", "seconds", "why"]]
    for row in rows:
        speed = f"{row.speedup:.2f}x" if row.speedup is not None else ""
        between = f"{row.low:.2f} .. {row.high:.2f}" if row.low is not None else ""
        name, why = one_line(row.name, NAME), shortened(row.reason, WHY)
        cells.append([name, row.verdict.value, speed, between, f"{row.seconds:.1f}", why])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    found = ["  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    cut = sum(len(row.reason) > WHY for row in rows)
    if cut and whole is not None:
        found += ["", f"{cut} of the reasons {'is' if cut == 1 else 'are'} shortened (…): in full in {whole}"]
    return [line.rstrip() for line in found] + ["", *summary(rows, of)]


def summary(rows: Sequence[Row], of: int | None = None) -> list[str]:
    counts = Counter(row.verdict for row in rows)
    said = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
    shares = [f"fast_{p:g} {fast_p(rows, p, of):.3f}" for p in THRESHOLDS]
    proven = [f"{proven_p(rows, p, of):.3f} by {p:g}" for p in (1.0, 1.5, 2.0)]
    tasks = len(rows) if of is None else of
    found = [f"{len(rows)} candidates: {said}", f"of {tasks}: {', '.join(shares)}", f"proven: {', '.join(proven)}"]
    baselines = sorted({row.baseline for row in rows if row.speedup is not None})
    if baselines:
        found[1] += f" ({' and '.join(baselines)} torch is what was to be beaten)"
    for name in sorted({name for row in rows for name in row.others}):
        faster = sum(row.verdict.same and row.others.get(name, 0.0) > 1 for row in rows)
        found.append(f"against {name}: {faster} correct and faster")
    return found
