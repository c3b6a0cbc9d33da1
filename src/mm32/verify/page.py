"""A report as a page for a person: what was found, and the verdict in the last line.

No text of a candidate can pass for a line of the tool's. Every line is made one line of printable characters (text.py).
Longer texts of a candidate (messages, logs, printed output) have a bar in front of each line. On a terminal, a line that
is too long goes on behind a bar as well, since the terminal would go on in its first column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .text import fold, in_units, one_line, shortened
from .verdict import BASELINE_NAMES, Verdict

if TYPE_CHECKING:
    from rich.console import Console

    from .report import Report

BAR = "  | "
CONTROL = "the reference's own"
PRINTED = 8  # how many of the last lines of the candidate's output are shown


class Page:
    """Writes a report to a rich console, which leaves out the styles where it is no terminal.

    `detail`: "quiet" is the verdict's line alone, "normal" the page, "verbose" also what the page leaves out when all is well.
    """

    def __init__(self, report: Report, console: Console, detail: str = "normal"):
        self.report = report
        self.console = console
        self.detail = detail

    def line(self, text: str = "", style: str | None = None) -> None:
        text = one_line(text, None)
        for row in fold(text, self.console.width, BAR) if self.console.is_terminal else [text]:
            self.console.print(row, style=style, markup=False, highlight=False, soft_wrap=True, emoji=False)

    def quote(self, log: object) -> None:
        """Print a text of the candidate's, each line behind a bar."""
        for line in str(log or "").split("\n"):
            if line.strip():
                self.line(BAR + line)

    def head(self, text: str) -> None:
        self.line()
        self.line(text, "bold")

    def table(self, columns: list[str], rows: list[list[str]], right: int = 99) -> None:
        """Print rows with aligned columns: to the left, or, from column number `right` on, to the right."""
        cells = [columns, *[[one_line(cell, None) for cell in row] for row in rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
        for number, row in enumerate(cells):
            parts = [
                cell.rjust(width) if i >= right else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            if number or any(columns):  # a table of words alone has no headings
                self.line("  " + "  ".join(parts).rstrip(), "dim" if number == 0 else None)

    def print(self) -> None:
        r = self.report
        if self.detail == "quiet":
            self.verdict()
            return
        self.verdict()
        self.wrong()
        self.failure()
        self.line()
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
        self.line()
        self.verdict()

    def wrong(self) -> None:
        """Print where the first output that differs is wrong, and what its wrong entries have in common."""
        w = self.report.wrong
        if not w:
            return
        self.line(f"  {w['path']}: {w['wrong']} of {w['entries']} entries are wrong ({w['wrong'] / w['entries']:.2%})")
        for said in w["pattern"]:
            self.line(f"    {said}")
        rows = [
            [name, str(tuple(w[name]["index"])), f"{w[name]['got']:.9g}", f"{w[name]['expected']:.9g}"]
            for name in ("first", "worst")
        ]
        self.table(["", "index", "got", "expected"], rows)

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
            given = "copied to the candidate" if self.report.parameters_by == "copy" else "some made from the same seed"
            self.line(f"  parameters {', '.join(shown)}{f' and {more} more' if more else ''} ({given})")
        self.line(f"  outputs    {', '.join(p['outputs'])}")

    def errors(self) -> None:
        r = self.report
        if not r.trials:
            return
        self.head("Same? Errors against the float64 result")
        rows = []
        timed = [(f"timed call, {t['why']}", t) for t in r.timed_outputs]
        for name, t in [*((f"trial {i + 1}, seed {t['seed']}", t) for i, t in enumerate(r.trials)), *timed]:
            same = "same" if t["same"] else "DIFFERENT"
            if t["candidate"] is None:  # shapes or types differ, or every value must be equal
                rows.append([name, "exact" if t["same"] else shortened(t["reason"], 60), "", "", "", same])
                continue
            for j, kind in enumerate(("normwise", "componentwise")):
                values = [number(t[who][kind]) for who in ("candidate", "reference", "bound")]
                rows.append([name if j == 0 else "", kind, *values, same if j == 0 else ""])
        self.table(["", "error", "candidate", "reference", "bound", ""], rows)
        self.line("  normwise: the error of the whole output relative to its size, ||C-C64|| / ||C64||")
        self.line(f"  componentwise: the worst entry's error, max |C-C64| in units of {self.unit()}")
        if r.precision:
            bits = r.precision["bits"]
            of = "products" if r.problem["contraction"] else "arithmetic"
            self.line(
                f"  effective precision of its {of}: {bits:.0f} bits{', as the reference' if bits >= 24 else ''} "
                "(fp32 24, three fp16 products 22, TF32 and fp16 11, bfloat16 8)"
            )
            if r.precision.get("own", 24.0) < min(bits, 24.0):
                self.line(
                    f"    seen on probes' data; on the script's own its errors, sums' rounding included, are of "
                    f"{r.precision['own']:.0f} bits"
                )
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
            if "status" not in p:  # the candidate ended during this probe
                rows.append([p["name"], "not done", p["asks"]])
            elif p["status"] == "skipped":
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
        caught = [case for case in r.self_test if case["caught"]]
        if len(caught) == len(r.self_test) and self.detail != "verbose":
            names = [case["name"] for case in r.self_test if not case["name"].startswith(CONTROL)]
            self.line(f"  all rejected: {', '.join(names)}; the reference's own output passes")
            return
        rows = []
        for case in r.self_test:
            control = case["name"].startswith(CONTROL)
            good = ("passes" if control else "caught") if case["caught"] else ("REJECTED" if control else "NOT CAUGHT")
            rows.append([case["name"], good, "" if control and case["caught"] else case["how"]])
        self.table(["", "", ""], rows)

    def times(self) -> None:
        t = self.report.timing
        if not t:
            return
        cpu = str(self.report.environment.get("device", "cpu")).startswith("cpu")
        self.head(
            "Faster? " + ("CPU times: no GPU here" if cpu else "On the GPU, every call on data that no cache holds")
        )
        rows = []
        for name, label in (
            ("reference", "reference"),
            ("candidate", "candidate"),
            ("control", "reference, second process"),
        ):
            side = t[name]
            rows.append([label, in_units(side["call_s"]), f"± {side['spread']:.1%}", in_units(side["wall_s"])])
        rows.append(["no model at all", "", "", in_units(t["null_s"])])
        self.table(["", "a call, net", "spread", "whole window, by this tool's clock"], rows)
        low, high = t["interval"]
        self.line(
            f"  speedup {t['speedup']:.3f}x net, {t['coverage']:.1%} interval {low:.3f} .. {high:.3f}; whole windows "
            f"{t['wall_speedup']:.3f}x ({t['rounds']} rounds, calls in each: {t['calls_a_round']})"
        )
        groups = t.get("groups")
        if groups:
            found = ", ".join(f"{group['speedup']:.3f}" for group in groups)
            self.line(f"  decided by {len(groups)} groups of processes, the table is of the first: {found}")
        alone = t.get("one_call")
        if alone:
            low, high = alone["interval"]
            self.line(
                f"  in windows of one call {alone['speedup']:.3f}x, {low:.3f} .. {high:.3f} ({alone['rounds']} rounds); "
                f"{in_units(alone['saved_s'])} saved, {in_units(alone['wanted_s'])} would bear it out: {alone['says']}"
            )
        for name, other in self.report.baselines.items():
            if "failed" in other:
                self.line(f"  against {BASELINE_NAMES[name]}: not timed ({other['failed']})")
                continue
            low, high = other["interval"]
            said = Verdict[other["verdict"]].value.removeprefix("SAME, ")
            self.line(f"  against {BASELINE_NAMES[name]}: {other['speedup']:.3f}x, {low:.3f} .. {high:.3f}: {said}")

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
            f"  candidate confined by: {', '.join(self.report.isolation) or 'nothing: it ran as you, with your rights'}"
        )
        self.line(
            f"  torch {e['torch']}, CUDA {e['cuda'] or 'none'}, Python {e['python']}; {self.report.seconds:.0f} s in all"
        )

    def failure(self) -> None:
        r = self.report
        if r.error:
            self.head("What went wrong")
            self.quote(r.error.get("message", r.reason))
            self.quote(r.error.get("context"))
            if r.error.get("line"):
                self.quote(f"{r.error['script']}:{r.error['line']}: {r.error['source']}")
            self.quote(r.error.get("hint"))
        if not r.verdict.same and r.printed.strip() and r.verdict is not Verdict.NOT_BUILT:
            self.head("The candidate printed, last")
            self.quote("\n".join(r.printed.split("\n")[-PRINTED:]))

    def verdict(self) -> None:
        r = self.report
        good = {Verdict.FASTER: "bold green", Verdict.SLOWER: "bold yellow", Verdict.INCONCLUSIVE: "bold yellow"}
        speed = f" {r.timing['speedup']:.2f}x {BASELINE_NAMES[r.baseline]}" if r.timing and r.verdict in good else ""
        for name, t in r.baselines.items() if speed else ():
            speed += f", {t['speedup']:.2f}x {BASELINE_NAMES[name]}" if "speedup" in t else f", no time of {name}"
        said = [r.reason] if r.reason else []
        if r.verdict.same and r.left_out:
            said.append(f"left out: {', '.join(r.left_out)}")
        reason = f": {'; '.join(said)}" if said else ""
        self.line(f"{r.verdict.value}{speed}{reason}", good.get(r.verdict, "bold red"))


def number(value: float) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
