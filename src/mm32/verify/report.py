"""What a verification found: one page for a person, the same as JSON for a machine."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .verdict import Judgement, Verdict

if TYPE_CHECKING:
    from rich.console import Console

    from .timing import Timing

SCHEMA = "mm32.verify/1"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: object) -> str:
    """Text of a candidate without control characters: it must not move the cursor of the page that judges it."""
    return CONTROL.sub("", str(text).replace("\t", "    "))


def judgement_record(judgement: Judgement) -> dict[str, Any]:
    return {
        "same": judgement.same,
        "reason": judgement.reason,
        "candidate": asdict(judgement.errors),
        "reference": asdict(judgement.reference),
        "bound": asdict(judgement.bounds),
    }


def timing_record(timing: Timing) -> dict[str, Any]:
    def side(name: str) -> dict[str, Any]:
        one = getattr(timing, name)
        return {
            "median_s": one.median,
            "spread": one.spread,
            "wall_s": one.wall,
            "rounds_s": list(one.rounds),
            "walls_s": list(one.walls),
        }

    reference, candidate = side("reference"), side("candidate")
    return {
        "reference": reference,
        "candidate": candidate,
        "speedup": timing.ratio,
        "interval": [timing.low, timing.high],
        "coverage": timing.coverage,
        "wall_speedup": reference["wall_s"] / candidate["wall_s"] if candidate["wall_s"] > 0 else None,
        "rounds": len(timing.reference.rounds),
        "calls_a_round": timing.calls,
    }


@dataclass
class Report:
    """Everything a run found. `verdict` and `reason` say what it comes to."""

    reference: str
    candidate: str
    seed: int
    verdict: Verdict = Verdict.NO_VERDICT
    reason: str = "the run did not finish"
    problem: dict[str, Any] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    self_test: list[dict[str, Any]] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)
    timed_outputs: list[dict[str, Any]] = field(default_factory=list)
    inputs_unmodified: bool | None = None
    deterministic: bool | None = None
    timing: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        return self.verdict.exit_code

    def as_dict(self) -> dict[str, Any]:
        """Plain values. Numbers that JSON has no form for (NaN, infinities) are the strings "nan", "inf", "-inf"."""
        record = {
            "schema": SCHEMA,
            "verdict": self.verdict.name,
            "exit_code": self.exit_code,
            "same": self.verdict.same,
            **{name: value for name, value in asdict(self).items() if name != "verdict"},
        }
        plain = _plain(record)
        assert isinstance(plain, dict)
        return plain

    def json(self) -> str:
        return json.dumps(self.as_dict(), indent=2, allow_nan=False)

    # ------------------------------------------------------------------------------------------------------ the page

    def print(self, console: Console) -> None:
        """The page, the verdict last."""
        Page(self, console).print()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


class Page:
    """Writes a report to a rich console; plain text where the console is not a terminal."""

    def __init__(self, report: Report, console: Console):
        self.report = report
        self.console = console

    def line(self, text: str = "", style: str | None = None) -> None:
        self.console.print(clean(text), style=style, markup=False, highlight=False, soft_wrap=True, emoji=False)

    def head(self, text: str) -> None:
        self.line()
        self.line(text, "bold")

    def table(self, columns: list[str], rows: list[list[str]], right: int = 99) -> None:
        """Columns lined up; those from number `right` on to the right."""
        cells = [columns, *[[clean(cell) for cell in row] for row in rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
        for number, row in enumerate(cells):
            parts = [
                cell.rjust(width) if i >= right else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self.line("  " + "  ".join(parts).rstrip(), "dim" if number == 0 else None)

    def print(self) -> None:
        r = self.report
        self.line("mm32 verify", "bold")
        self.line(f"  reference  {r.reference}")
        self.line(f"  candidate  {r.candidate}")
        self.problem()
        self.errors()
        self.probes()
        self.self_test()
        self.times()
        if r.notes:
            self.head("Notes")
            for note in r.notes:
                self.line(f"  {note}")
        self.environment()
        self.failure()
        self.verdict()

    def problem(self) -> None:
        p = self.report.problem
        if not p:
            return
        c = p["contraction"]
        if c:
            batch = f"batch {c['batch']}, " if c["batch"] > 1 else ""
            extra = (", + bias" if c["bias"] else "") + (f", {c['activation']}" if c["activation"] else "")
            self.line(f"  problem    {c['op']}, {batch}M={c['m']} K={c['k']} N={c['n']}{extra}")
        self.line(f"  inputs     {', '.join(p['inputs']) or 'none'}")
        if p["parameters"]:
            shown = [f"{name} {shape}" for name, shape in list(p["parameters"].items())[:6]]
            more = len(p["parameters"]) - len(shown)
            self.line(f"  parameters {', '.join(shown)}{f' and {more} more' if more else ''} (copied to the candidate)")
        self.line(f"  outputs    {', '.join(p['outputs'])}")

    def errors(self) -> None:
        r = self.report
        if not r.trials:
            return
        self.head("Same? Errors against the float64 result")
        rows = []
        timed = [("timed call (burst)" if t["burst"] else "timed call", t) for t in r.timed_outputs]
        for name, t in [*((f"trial {i + 1}, seed {t['seed']}", t) for i, t in enumerate(r.trials)), *timed]:
            for j, kind in enumerate(("normwise", "componentwise")):
                values = [number(t[who][kind]) for who in ("candidate", "reference", "bound")]
                rows.append(
                    [name if j == 0 else "", kind, *values, ("same" if t["same"] else "DIFFERENT") if j == 0 else ""]
                )
        self.table(["", "error", "candidate", "reference", "bound", ""], rows)
        self.line("  normwise: ||C-C64|| / ||C64||; componentwise: max |C-C64| in units of " + self.unit())
        said = {True: "not modified", False: "MODIFIED by the candidate", None: "not checked"}
        self.line(f"  inputs: {said[r.inputs_unmodified]} (compared bit for bit after the run)")
        if r.deterministic is not None:
            self.line(f"  two runs on the same inputs: {'the same bits' if r.deterministic else 'different bits'}")

    def unit(self) -> str:
        c = self.report.problem.get("contraction")
        if c is None:
            return "u (|C64| + rms C64)"
        return "u (|A||B| + |bias|)" if c["bias"] else "u |A||B|"

    def probes(self) -> None:
        r = self.report
        if not r.probes:
            return
        self.head("Probes: the same shapes, other data")
        rows = []
        for p in r.probes:
            if p["status"] == "skipped":
                rows.append([p["name"], "skipped", p["reason"]])
            elif p["status"] == "different":
                rows.append([p["name"], "DIFFERENT", p["reason"]])
            else:
                rows.append([p["name"], "same", p["asks"]])
        self.table(["", "", ""], rows)

    def self_test(self) -> None:
        r = self.report
        if not r.self_test:
            return
        self.head("Could this check have failed? Wrong outputs given to the same judge")
        rows = []
        for case in r.self_test:
            control = case["name"].startswith("the reference's own")
            good = ("passes" if control else "caught") if case["caught"] else ("REJECTED" if control else "NOT CAUGHT")
            rows.append([case["name"], good, "" if control and case["caught"] else case["how"]])
        self.table(["", "", ""], rows)

    def times(self) -> None:
        t = self.report.timing
        if not t:
            return
        from .timing import seconds

        cpu = str(self.report.environment.get("device", "cpu")).startswith("cpu")
        self.head("Faster? " + ("CPU times: no GPU here" if cpu else "CUDA events, L2 cache flushed before every call"))
        rows = []
        for name in ("reference", "candidate"):
            side = t[name]
            rows.append([name, seconds(side["median_s"]), f"± {side['spread']:.1%}", seconds(side["wall_s"])])
        self.table(["", "median", "spread", "by this tool's own clock"], rows)
        low, high = t["interval"]
        self.line(
            f"  speedup {t['speedup']:.3f}x, {t['coverage']:.1%} interval {low:.3f} .. {high:.3f} "
            f"({t['rounds']} rounds in turn, {t['calls_a_round']} call{'s' if t['calls_a_round'] > 1 else ''} each)"
        )

    def environment(self) -> None:
        e = self.report.environment
        if not e:
            return
        self.head("Environment")
        if "card" in e:
            self.line(f"  {e['card']}, {e['memory_gib']} GiB, L2 {e['l2_mib']} MiB, driver {e['driver']}")
        else:
            self.line(f"  CPU: times are CPU times. {e['cpu']}, {e['threads']} threads")
        self.line(
            f"  torch {e['torch']}, CUDA {e['cuda'] or 'none'}, Python {e['python']}; {self.report.seconds:.0f} s in all"
        )

    def failure(self) -> None:
        r = self.report
        if r.error:
            self.head("What went wrong")
            where = f"{r.error.get('script')}:{r.error['line']}: {r.error.get('source')}" if r.error.get("line") else ""
            self.line(f"  {r.error.get('message', r.reason)}")
            for line in str(r.error.get("context") or "").splitlines():
                self.line(f"  {line}")
            if where:
                self.line(f"  {where}")
            if r.error.get("hint"):
                self.line(f"  {r.error['hint']}")
        if not r.verdict.same and r.printed.strip() and r.verdict is not Verdict.NOT_BUILT:
            self.head("The candidate printed, last")
            for line in r.printed.strip().splitlines()[-8:]:
                self.line(f"  | {line[:200]}")

    def verdict(self) -> None:
        r = self.report
        good = {Verdict.FASTER: "bold green", Verdict.SLOWER: "bold yellow", Verdict.INCONCLUSIVE: "bold yellow"}
        self.line()
        speed = f" {r.timing['speedup']:.2f}x" if r.timing and r.verdict in good else ""
        reason = f": {r.reason}" if r.reason and not (r.error and r.reason == r.error.get("message")) else ""
        if r.error and not reason:
            reason = f": {r.error.get('message')}"
        self.line(f"{r.verdict.value}{speed}{reason}", good.get(r.verdict, "bold red"))


def number(value: float) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
