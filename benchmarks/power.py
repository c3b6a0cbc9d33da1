"""Counts how often a small gain is called FASTER, and equal code is not: python benchmarks/power.py [-o FILE.json] [--copies N].

The reference adds a zero to its product of 2048 x 896 x 2048, which is one more pass over the result. The faster candidate leaves
it out: an honest gain, about 5 % less time on an H200 when data are cold, as they are in the windows. The gain when data are warm
is timed first, by CUDA events, interleaved. Each copy is a file of its own, verified as one of a batch; the identical copies are
the reference itself, its class renamed. In the record, `groups` of a row is what groups of processes measured, and `apart` is how
far groups lie from each other. tests/support/verify/simulated_processes.py simulates what the rule makes of such numbers.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import verify_runs

from mm32.verify import Report, Verdict
from mm32.verify.batch.jobs import Pair
from mm32.verify.timing import rounds, several

SIZES = {"cuda": (2048, 896, 2048), "cpu": (256, 288, 256)}
METHOD = (
    "mm32 verify of copies of a candidate that leaves out one pass over the result, and of copies of the reference; `gain` by "
    "CUDA events, interleaved, warm"
)
SCRIPT = """import torch
from torch import nn

# {number}
M, K, N = {sizes}


class {name}(nn.Module):
    def forward(self, A, B):
        return {result}


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]
"""
KINDS = {"faster": "A @ B", "identical": "(A @ B) + 0.0"}
MAY = {"faster": {Verdict.FASTER}, "identical": {Verdict.INCONCLUSIVE}}


def gain(sizes: tuple[int, int, int]) -> float | None:
    """Return the reference's time over the faster candidate's, by CUDA events; None on a CPU."""
    if not torch.cuda.is_available():
        return None
    m, k, n = sizes
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    calls: dict[str, Callable[[], torch.Tensor]] = {"faster": lambda: a @ b, "identical": lambda: (a @ b) + 0.0}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(40):
        for name, call in calls.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(20):
                call()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end))
    return statistics.median(x / y for x, y in zip(times["identical"], times["faster"], strict=True))


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return, for each kind, how many are done, and how many got the verdict that they have to get."""
    of = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    return {kind: {"done": len(some), "right": sum(row["fits"] for row in some)} for kind, some in of.items()}


def timed(report: Report) -> dict[str, Any]:
    """Return the times for a row: those of the first processes, and those of all groups of processes."""
    t = report.timing
    if t is None:
        return {}
    sides = {name: {key: t[name][key] for key in ("call_s", "spread", "wall_s")} for name in rounds.SIDES[:3]}
    low, middle, high = statistics.quantiles(t["null_walls_s"], n=4)
    null = {"wall_s": middle, "spread": (high - low) / 2 / middle}
    return {**sides, "null": null, "rounds": t["rounds"], "groups": t["groups"], "stages": report.stages}


def apart(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how far the groups of processes lie from each other, as standard deviations of logarithms.

    `control`: of the ratios of the reference's two processes, about 0, which they would be without noise and differences between
    processes. Each kind: the mean of its ratios, and their standard deviation about it. `first_control`: the mean control of the
    first groups alone, in which one process of the reference is the one that computed the expected outputs before.
    """
    found: dict[str, Any] = {}
    controls: list[float] = []
    first = [math.log(some[0]["control"]) for row in rows if (some := _groups(row["timing"]))]
    found["first_control"] = math.exp(statistics.fmean(first)) if first else None
    for kind in KINDS:
        groups = [group for row in rows if row["kind"] == kind for group in _groups(row["timing"])]
        ratios = [math.log(group["speedup"]) for group in groups]
        controls += [math.log(group["control"]) for group in groups]
        found[kind] = [math.exp(statistics.fmean(ratios)), statistics.stdev(ratios)] if len(ratios) > 1 else None
    return {**found, "control": math.sqrt(statistics.fmean(x * x for x in controls)) if controls else None}


def _groups(made: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row's groups; if the first one was enough, only that one, made from its times."""
    if made and not made["groups"]:
        reference, control, candidate = (made[name]["call_s"] for name in several.SIDES)
        return [{"speedup": math.sqrt(reference * control) / candidate, "control": reference / control}]
    return list(made.get("groups", []))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verify_runs.add_options(parser)
    parser.add_argument("--copies", type=int, default=40, metavar="N", help="of each kind (40)")
    options = parser.parse_args(arguments)
    kept = verify_runs.Record("power", METHOD, options.output, options.at_once)
    sizes, rows = SIZES[verify_runs.DEVICE], []
    gained = gain(sizes)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        reference = folder / "reference.py"
        reference.write_text(SCRIPT.format(number="", sizes=sizes, name="Model", result=KINDS["identical"]))
        pairs = []
        for number in range(options.copies):
            for kind, result in KINDS.items():
                path = folder / f"{kind}_{number}.py"
                path.write_text(SCRIPT.format(number=number, sizes=sizes, name="ModelNew", result=result))
                pairs.append(Pair(reference, path, path.name))
        run = verify_runs.Run(options.limit, options.store, options.at_once)
        for report in run.reports(pairs):
            name = Path(report.candidate).stem
            kind = name.partition("_")[0]
            fits = report.verdict in MAY[kind]
            known = {"name": name, "kind": kind, "fits": fits, "timing": timed(report)}
            rows.append({**known, **verify_runs.outcome(report), "results": {}})
            print(verify_runs.line(name, rows[-1], fits), flush=True)
            kept.write(rows, sizes=list(sizes), gain=gained, summary=summary(rows), apart=apart(rows))
    print(f"gain {gained}", summary(rows), f"apart {apart(rows)}", "ended before all were done" if run.over else "")
    return int(not all(row["fits"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
