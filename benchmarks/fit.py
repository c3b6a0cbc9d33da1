"""Fits the planner's shares (mm32.plan.shares.SHARES) to measured times, and says how good estimates and choices are.

    python benchmarks/fit.py measure --out FILE [--minutes N] [--short]
                                                                 on the card: times of random products, candidate by candidate
    python benchmarks/fit.py fit RECORD...                       anywhere: the table of shares to put in shares.py, and a report

`measure` times every sensible candidate of each kernel, and torch, on CASES random products, or with --short on some 640 that
torch is estimated to compute in at most 120 us. Run again with the same file, it continues where it stopped. `fit` takes this
record, and uses what it can of records of benchmarks/record.py. Half of the cases, chosen by the hash of their names, are held
out: the shares are fitted to the others, and the report is of those held out.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mm32 import gemm
from mm32 import plan as planning
from mm32.bench import measure, peers, record, suite
from mm32.bench.measure import Case
from mm32.cuda import compile as compiler
from mm32.plan import card as cards
from mm32.plan import cost

CASES, SEED = 320, 7
SHORT_SEEDS, SHORT = (11, 12, 13), 120e-6  # of short products; seconds
AHEAD = 40  # cases whose kernels are compiled together
MOST_BYTES, MOST_FLOPS = 4e9, 2**42  # the most of one case
# Candidates are measured up to NEAR times the least estimate of all, and each kernel's best one up to FAR times.
NEAR, FAR = 3.0, 10.0
ROUNDS = 15
PULL = 0.3  # the weight of a share's present value, in samples: a few measured times do not move it far
METHOD = "interleaved rounds, cold L2, medians of CUDA events; random products, the planner's candidates by name"


# ---------------------------------------------------------------------------------------------------------------------
# The cases


def cases(count: int = CASES, seed: int = SEED) -> list[Case]:
    """Return random products of every kind that the planner has to choose for, ordered so that any part is a fair sample."""
    rng = random.Random(seed)

    def size(low: float, high: float) -> int:
        drawn = round(2 ** rng.uniform(math.log2(low), math.log2(high)))
        return max(1, drawn if rng.random() < 0.4 else round(drawn / 64) * 64 or drawn)

    kinds = {
        "any": lambda: (size(1, 16384), size(1, 16384), size(1, 16384), 1),
        "square": lambda: (*(round(size(64, 12288) * rng.uniform(0.7, 1.4)) for _ in "mn"), size(64, 12288), 1),
        "large": lambda: (size(1024, 16384), size(1024, 16384), size(1024, 16384), 1),
        "thin": lambda: (
            *rng.choice(((rng.randint(1, 40), size(256, 32768)), (size(256, 32768), rng.randint(1, 40)))),
            size(64, 16384),
            1,
        ),
        "deep": lambda: (size(16, 768), size(16, 768), size(8192, 1048576), 1),
        "flat": lambda: (size(1024, 32768), size(1024, 32768), size(1, 256), 1),
        "batch": lambda: (size(16, 1024), size(16, 1024), size(16, 1024), rng.choice((2, 4, 8, 16, 64, 256))),
    }
    made: dict[Case, None] = {}
    while len(made) < count:
        m, n, k, batch = kinds[list(kinds)[len(made) % len(kinds)]]()
        epilogue = {"bias": True, "activation": rng.choice((None, "relu", "gelu"))} if rng.random() < 0.25 else {}
        case = Case(m, n, k, rng.choice(gemm.LAYOUTS), "randn", batch=batch, **epilogue)  # type: ignore[arg-type]
        if case.flops <= MOST_FLOPS and 4.0 * batch * (m * k + k * n + m * n) <= MOST_BYTES:
            made[case] = None
    return list(made)


def short_cases(card: planning.Card) -> list[Case]:
    """Return products like those of `mm32 bench --shapes random`, by other seeds, that torch is estimated to compute in SHORT."""
    listed = [case for seed in SHORT_SEEDS for case in suite.random_cases(seed=seed)]
    return [case for case in listed if cost.of(card).torch(cost.Work(problem(asdict(case))), "fp32") <= SHORT]


def held_out(name: str) -> bool:
    """Return whether the case of this name is for the report, not for the fit."""
    return zlib.crc32(name.encode()) % 2 == 1


def problem(row: Mapping[str, Any], precision: str = "fp32") -> gemm.Gemm:
    """Return the product of a record's row, with operands as measure.Case makes them."""
    made = gemm.from_layout(
        row["layout"], row["m"], row["n"], row["k"],
        bias=row["bias"], activation=row["activation"], precision=precision,
    )  # fmt: skip
    if row["batch"] == 1:
        return made
    sizes = ((made.a, made.m * made.k), (made.b, made.k * made.n), (made.out, made.m * made.n))
    a, b, out = (replace(matrix, batch=(elements,)) for matrix, elements in sizes)
    return replace(made, batch=(row["batch"],), a=a, b=b, out=out)


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


def sensible(asked: gemm.Gemm, card: planning.Card) -> dict[str, planning.Plan]:
    """Return plans of the candidates that could be the fastest, by label: the best of each tile, and the best of each kernel.

    A tile has its best two if both are estimated within 1.3 times the least estimate.
    """
    listed: list[tuple[str, str, float, Any]] = []
    for kernel in planning.KERNELS:
        if planning.unsupported(kernel, card) is None and planning.unsuited(kernel, asked) is None:
            listed += [(kernel, *candidate) for candidate in planning.candidates(asked, card, kernel)]
    listed.sort(key=lambda candidate: candidate[2])
    least, seen, kernels = listed[0][2], defaultdict(int), set()
    chosen: dict[str, planning.Plan] = {}
    for kernel, label, seconds, assemble in listed:
        tile = label.partition("/")[0]
        first = kernel not in kernels
        if seconds <= (FAR if first else NEAR) * least and seen[tile] < (2 if seconds <= 1.3 * least else 1):
            chosen[label] = assemble()
            seen[tile] += 1
        kernels.add(kernel)
    return chosen


def measure_case(case: Case, index: int, budget: float) -> dict[str, Any]:
    """Return a row: seconds of each sensible candidate, and of torch in fp32 and TF32, by at most `budget` seconds of rounds."""
    from mm32.cuda import launch

    a, b, bias = case.inputs()
    out = torch.empty(gemm.result_shape(a.shape, b.shape), device=a.device)
    asked = gemm.describe(a, b, bias, out, case.activation)
    functions: dict[str, Any] = {}
    kernels, unavailable = {}, {}
    for name in ("torch", "torch-tf32"):
        functions[name], kernels[name] = peers.call(name, a, b, bias, case.activation), "torch"
    for label, plan in sensible(asked, launch.card_of(index)).items():
        try:
            run = partial(launch.Executable(plan, index), a, b, bias, out)
            run()
            torch.cuda.synchronize()
            functions[label], kernels[label] = run, plan.kernel
        except measure.Refusals as error:
            unavailable[label] = measure.reason(error)
    times = measure.interleave(functions, ROUNDS, budget)
    results = {}
    for name, taken in times.items():
        low, high = measure.interval(taken)
        results[name] = {"seconds": measure.median(taken), "low": low, "high": high, "kernel": kernels[name]}
    row = {"case": case.name, **asdict(case), "rounds": len(times["torch"])}
    return {**row, "results": results, "unavailable": unavailable}


def compile_ahead(some: Sequence[Case], card: planning.Card) -> None:
    """Compile the kernels of all candidates of some cases, side by side: one after another they would take most of the time."""
    plans = [plan for case in some for plan in sensible(problem(asdict(case)), card).values()]
    wanted = {(launch.source, launch.constants) for plan in plans for launch in plan.launches}
    compiler.compiler_version()  # loads NVRTC once: its bindings are not safe if several threads do that
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for future in [pool.submit(compiler.cubin, source, constants, card.arch) for source, constants in wanted]:
            future.exception()  # the case that needs it says so


def measure_all(path: Path, minutes: float, short: bool) -> int:
    """Measure the cases that `path` does not have, for `minutes`. Return how many are left."""
    from mm32.cuda import launch

    card = launch.card_of(torch.cuda.current_device())
    rows: list[dict[str, Any]] = []
    if path.exists():
        before = record.read(path)
        here = record.environment()
        if before["environment"] != here or record.stale(before):
            raise SystemExit(f"{path} is of other kernels or of another machine: give another file, or remove it")
        rows = before["rows"]
    done, end = {row["case"] for row in rows}, time.monotonic() + 60 * minutes
    left = [case for case in (short_cases(card) if short else cases()) if case.name not in done]
    compiled = 0
    while left and time.monotonic() < end:
        if compiled == 0:
            compile_ahead(left[:AHEAD], card)
            compiled = AHEAD
        case = left.pop(0)
        compiled -= 1
        try:
            rows.append(measure_case(case, torch.cuda.current_device(), budget=1.0))
        except torch.OutOfMemoryError as error:
            rows.append(
                {"case": case.name, **asdict(case), "results": {}, "unavailable": {"all": measure.reason(error)}}
            )
        torch.cuda.empty_cache()
        found = {name: result["seconds"] for name, result in rows[-1]["results"].items() if name != "torch-tf32"}
        fastest = min(found, key=found.__getitem__, default="nothing")
        print(f"{len(rows)}/{len(rows) + len(left)} {case.name}: {fastest} of {len(found)}", flush=True)
        record.write(path, record.make("cases", rows, METHOD))
    return len(left)


# ---------------------------------------------------------------------------------------------------------------------
# Fitting


@dataclass(frozen=True)
class Sample:
    """One measured time of a kernel. `label`: the candidate's label, or the kernel's name for the kernel's best candidate."""

    case: str
    asked: gemm.Gemm
    kernel: str
    label: str
    seconds: float
    torch: str = "fp32"


Samples = Sequence[Sample]
Errors = dict[str, list[float]]

# Kernel -> what the names of the shares begin with that are fitted to its times. Kernels are fitted in this order.
FAMILIES = {
    "naive": ("naive.",),
    "dot": ("dot.",),
    "tiled": ("tiled.",),
    "simt": ("simt.", "narrow.", "fixup.", "reduce."),
    "tensorcore": ("tensorcore.", "pack", "scale", "accept", "inline", "emulated.", "store"),
    "mma": ("mma.",),
    "direct": ("direct.",),
    "torch": ("torch.",),
}


def card_of(made: Mapping[str, Any]) -> planning.Card:
    """Return the card of a record. Raises ValueError unless it is in card.py's table."""
    return cards.named(made["environment"]["card"])


def samples(records: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """Return the times of the planner's candidates in the records. Results of several kernels, or of none, are left out."""
    found = []
    for made in records:
        for row in made["rows"]:
            for name, result in row.get("results", {}).items():
                if "m" not in row or name in ("mm32-packed", "triton-tf32x3") or "kernel" not in result:
                    continue
                precision = "tf32" if name == "mm32-tf32" else "fp32"
                kernel = result["kernel"]
                if name.startswith("mm32") and kernel == "torch":
                    continue  # measured under torch's own name
                label = name if "/" in name else kernel
                which = "tf32" if name == "torch-tf32" else "fp32"
                asked = problem(row, precision)
                if not asked.empty and asked.k > 0 and planning.unsuited(kernel, asked) is None:
                    found.append(Sample(row["case"], asked, kernel, label, result["seconds"], which))
    return found


def estimates(wanted: Samples, card: planning.Card) -> list[float]:
    """Return the planner's seconds for each sample; nan for a candidate that the planner no longer has."""
    known: dict[tuple, dict[str, float]] = {}
    made = []
    for sample in wanted:
        key = (sample.asked, sample.kernel, sample.torch)
        if key not in known:
            listed = planning.candidates(sample.asked, card, sample.kernel, sample.torch)
            known[key] = {label: seconds for label, seconds, _ in listed}
        of_kernel = known[key]
        whole = sample.label == sample.kernel
        made.append(min(of_kernel.values()) if whole else of_kernel.get(sample.label, math.nan))
    return made


def loss(wanted: Samples, weights: Sequence[float], card: planning.Card) -> float:
    """Return the weighted mean distance of estimate and time: |log of their ratio|, smooth below 5 %."""
    total = weight = 0.0
    for sample, w, seconds in zip(wanted, weights, estimates(wanted, card), strict=True):
        if seconds == seconds and seconds > 0:  # not nan
            total += w * math.hypot(0.05, math.log(seconds / sample.seconds))
            weight += w
        else:
            total, weight = total + w, weight + w
    return total / max(weight, 1e-9)


def weights_of(wanted: Samples) -> list[float]:
    """Return the weights of samples. Those near the fastest of their case decide a choice, so they count more."""
    fastest: dict[str, float] = {}
    for sample in wanted:
        if sample.torch == "fp32":
            fastest[sample.case] = min(fastest.get(sample.case, math.inf), sample.seconds)
    return [1.0 if s.seconds <= 2 * fastest.get(s.case, s.seconds) else 0.3 for s in wanted]


def bounds(name: str) -> tuple[float, float]:
    return (1e-3, 30.0) if name.endswith(".launches") else (1e-3, 1.25)


def fit(training: Samples, card: planning.Card, sweeps: int = 12) -> dict[str, float]:
    """Return shares fitted to the samples, kernel by kernel, to three significant digits.

    The fit descends along each share in turn, in steps of 30 % down to 1 %. Shares that no sample moves keep their values.
    """
    fitted = dict(cost.SHARES)
    weights = weights_of(training)
    for kernel, prefixes in FAMILIES.items():
        picked = [(s, w) for s, w in zip(training, weights, strict=True) if s.kernel == kernel]
        if not picked:
            continue
        own, counts = [s for s, _ in picked], [w for _, w in picked]
        names = [name for name in fitted if name.startswith(prefixes)]

        def at(
            values: Mapping[str, float], own: Samples = own, counts: Sequence[float] = counts, names: list[str] = names
        ) -> float:
            pulled = sum(abs(math.log(values[name] / cost.SHARES[name])) for name in names)
            with cost.shares(values):
                return loss(own, counts, card) + PULL * pulled / sum(counts)

        least, step = at(fitted), 0.3
        for _ in range(sweeps):
            before = least
            for name in names:
                low, high = bounds(name)
                for factor in (1 + step, 1 / (1 + step)):
                    tried = {**fitted, name: min(max(fitted[name] * factor, low), high)}
                    if (value := at(tried)) < least - 1e-6:
                        fitted, least = tried, value
                        break
            if before - least < 1e-3 * before:
                step /= 2
                if step < 0.01:
                    break
    return {name: float(f"{value:.3g}") for name, value in fitted.items()}


# ---------------------------------------------------------------------------------------------------------------------
# The report


def errors(wanted: Samples, card: planning.Card) -> Errors:
    """Return |estimate / time - 1| of each kernel's samples."""
    found: Errors = defaultdict(list)
    for sample, seconds in zip(wanted, estimates(wanted, card), strict=True):
        if seconds == seconds:
            name = sample.kernel if sample.torch == "fp32" else f"{sample.kernel} ({sample.torch})"
            found[name].append(abs(seconds / sample.seconds - 1))
    return dict(found)


@dataclass(frozen=True)
class Regret:
    """What a choice loses in one case.

    `ratio`: the time of the candidate that "auto" would take, of those measured, over the time of the fastest (`seconds`).
    """

    case: str
    chosen: str
    fastest: str
    seconds: float
    ratio: float


def regrets(wanted: Samples, card: planning.Card) -> list[Regret]:
    """Return the Regret of each case in which two or more of the candidates that "auto" considers were measured.

    torch's fp32 product is one of these candidates. A candidate that was measured several times has the median of its times.
    """
    by_case: dict[str, dict[str, list[tuple[Sample, float]]]] = defaultdict(lambda: defaultdict(list))
    for sample, seconds in zip(wanted, estimates(wanted, card), strict=True):
        if sample.torch == "fp32" and sample.asked.precision == "fp32" and seconds == seconds:
            by_case[sample.case][sample.label].append((sample, seconds))
    found = []
    for case, by_label in by_case.items():
        measured = [
            (replace(of[0][0], seconds=measure.median([s.seconds for s, _ in of])), of[0][1])
            for of in by_label.values()
        ]
        considered = dict(planning.plan(measured[0][0].asked, card, torch="fp32").estimates)
        options = [(s, t) for s, t in measured if s.kernel in considered]
        if len(options) >= 2:
            chosen, fastest = min(options, key=lambda o: o[1])[0], min(options, key=lambda o: o[0].seconds)[0]
            ratio = chosen.seconds / fastest.seconds
            found.append(Regret(case, chosen.label, fastest.label, fastest.seconds, ratio))
    return found


def report(wanted: Samples, card: planning.Card) -> str:
    """Return errors by kernel and the regret of the choice, as text.

    The aims are a median error of 12 %, a mean regret of 1.5 %, and a worst regret of 15 % for a product above 50 us.
    """
    lines = [f"{'kernel':<14} {'times':>6} {'median error':>13} {'worst':>8}"]
    for kernel, values in sorted(errors(wanted, card).items()):
        lines.append(f"{kernel:<14} {len(values):6} {measure.median(values):13.1%} {max(values):8.0%}")
    found = regrets(wanted, card)
    if not found:
        return "\n".join([*lines, "no case has two candidates: nothing is said of choices"])
    lost = [r.ratio - 1 for r in found]
    lines.append(f"regret of the choice in {len(found)} cases: mean {sum(lost) / len(lost):.2%}, worst {max(lost):.1%}; "
                 f"the fastest is chosen in {sum(x <= 0.005 for x in lost)}")  # fmt: skip
    long = [r for r in found if r.seconds > 50e-6]
    for r in sorted(long, key=lambda r: -r.ratio)[:5]:
        lines.append(f"  {r.ratio - 1:6.1%}  {r.case}: {r.chosen} for {r.fastest}, {r.seconds * 1e6:.0f} us")
    return "\n".join(lines)


def fit_records(paths: Sequence[Path]) -> str:
    """Return what `fit` prints for these records."""
    records = [record.read(path) for path in paths]
    found = {card_of(made) for made in records}
    if len(found) != 1:
        raise SystemExit(f"records of one card are fitted together, these are of {', '.join(c.name for c in found)}")
    (card,) = found
    everything = samples(records)
    training = [s for s in everything if not held_out(s.case)]
    held = [s for s in everything if held_out(s.case)]
    count = len({s.case for s in everything})
    page = [f"{card.name}: {len(everything)} times of {count} cases, {len({s.case for s in held})} of them held out"]
    page += ["", "held out, by the shares of today", report(held, card)]
    fitted = fit(training, card)
    with cost.shares(fitted):
        page += ["", "held out, by the shares that were fitted", report(held, card)]
    page += ["", "SHARES, those that changed:"]
    page += [
        f'    "{name}": {value:g},  # {cost.SHARES[name]:.3g}'
        for name, value in fitted.items()
        if _changed(name, value)
    ]
    return "\n".join(page)


def _changed(name: str, value: float) -> bool:
    return abs(value / cost.SHARES[name] - 1) > 5e-3


# ---------------------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="time the cases on the card here")
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--minutes", type=float, default=9.0)
    measuring.add_argument("--short", action="store_true", help="short products, not those of all kinds")
    fitting = commands.add_parser("fit", help="fit the shares to records and report")
    fitting.add_argument("records", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "fit":
        print(fit_records(options.records))
        return 0
    if not torch.cuda.is_available():
        print("benchmarks/fit.py measure needs a CUDA device; torch finds none here", file=sys.stderr)
        return 2
    left = measure_all(options.out, options.minutes, options.short)
    print(f"{left} cases are left: run it again" if left else "all cases are measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
