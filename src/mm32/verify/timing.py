"""Faster or not: alternating rounds of both sides, the interval of their ratio, and a second clock to check the first.

Each round times both sides, in an order that alternates, so that a drift of clocks or temperature affects both. A round's
ratio is the reference's median over the candidate's. The verdict is by the median of the rounds' ratios and its
distribution-free interval (order statistics, at least 95 %). The candidate's own process reports its times and could
lie, so this process also times bursts of calls by its own clock.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .channel import Failure, Reply
from .process import WorkerProcess
from .verdict import Verdict

MIN_ROUNDS = 6
MAX_ROUNDS = 30
# Two processes that run the same code differ by more than their own rounds do (by where memory and threads are placed),
# so the interval must be this far from 1. docs/verifying.md has the measurements.
MARGIN = 1.02
UNSTABLE = 2.0  # a side whose median is more than this many times its fastest call was disturbed
LONG = 0.02  # seconds of a call; above it, this process's clock times the rounds as well, and there are no bursts
ROUND = 0.03  # seconds of calls in a round, where calls are shorter
BURST = 0.06  # seconds of calls in a burst
BURSTS = 5
GIVE_UP = 240.0  # seconds after which no round is begun, even after fewer than MIN_ROUNDS
# What a call may take beyond the time that the candidate claims: the host's work, which events do not measure.
HOST_ALLOWANCE = 200e-6
CLAIM_FACTOR = 1.5


@dataclass
class Times:
    """Seconds of one side's calls: `rounds` medians by its own clock, `walls` means by this process's clock."""

    rounds: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    fastest: float = math.inf  # call of all rounds

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def wall(self) -> float:
        return statistics.median(self.walls)

    @property
    def spread(self) -> float:
        """Half the interquartile range over the median."""
        if len(self.rounds) < 4 or not self.median > 0:
            return 0.0
        low, _, high = statistics.quantiles(self.rounds, n=4)
        return (high - low) / 2 / self.median


@dataclass
class Kept:
    """The outputs of one timed call, to be judged: the shift that made its inputs, and both sides' outputs."""

    shift: int
    reference: Any
    candidate: Any
    burst: bool


@dataclass
class Timing:
    """The outcome of `measure`: both sides' times, the ratio reference : candidate with its interval, the verdict and why."""

    reference: Times
    candidate: Times
    ratio: float
    low: float
    high: float
    coverage: float
    calls: int
    verdict: Verdict
    note: str
    kept: list[Kept] = field(default_factory=list)


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """The median's confidence interval from order statistics, and its exact coverage.

    Assumes only that rounds are independent. Fewer than six values cannot reach 95 %: their range is returned, with its
    lower coverage.
    """
    ordered = sorted(values)
    n = len(ordered)
    best = (ordered[0], ordered[-1], 1 - 2.0 ** (1 - n))
    tail = 0.0
    for j in range(n // 2):
        tail += math.comb(n, j) / 2.0**n
        if 1 - 2 * tail < level:
            break
        best = (ordered[j], ordered[n - 1 - j], 1 - 2 * tail)
    return best


def decide(reference: Times, candidate: Times) -> tuple[Verdict, str, tuple[float, float, float, float]]:
    """The verdict on speed, why, and (ratio, low, high, coverage). A pure function of the times."""
    claims = [*candidate.rounds, *candidate.walls]
    if not all(math.isfinite(t) and t > 0 for t in claims):
        nan = math.nan
        return (
            Verdict.SUSPECT,
            "the candidate's process reported times that are no positive numbers",
            (nan, nan, nan, 0.0),
        )
    ratios = [a / b for a, b in zip(reference.rounds, candidate.rounds, strict=True)]
    low, high, coverage = interval(ratios)
    numbers = (statistics.median(ratios), low, high, coverage)
    # The fastest burst is compared, and the machine's load, as the reference's times show it, is allowed for: an honest
    # candidate on a busy machine must not be suspect.
    load = max(1.0, reference.wall / reference.median)
    allowance = HOST_ALLOWANCE + max(0.0, reference.wall - reference.median)
    came_back = min(candidate.walls)
    if not (came_back <= CLAIM_FACTOR * load * candidate.median + allowance):
        return (
            Verdict.SUSPECT,
            f"the candidate's process claims {in_units(candidate.median)} a call, but calls came back only every "
            f"{in_units(came_back)} by this tool's clock",
            numbers,
        )
    by_wall = reference.wall / candidate.wall
    for name, side in (("reference", reference), ("candidate", candidate)):
        if side.median > UNSTABLE * side.fastest:
            return (
                Verdict.INCONCLUSIVE,
                f"the {name}'s median of {in_units(side.median)} is over {UNSTABLE:g} times its fastest call, "
                f"{in_units(side.fastest)}: something else keeps this machine busy",
                numbers,
            )
    if coverage < 0.95:
        return Verdict.INCONCLUSIVE, f"{len(ratios)} rounds are too few for a 95 % interval", numbers
    if low > MARGIN:
        if not (by_wall > 1):
            return (
                Verdict.INCONCLUSIVE,
                f"faster by the device's clock, but not by this tool's ({by_wall:.2f}x, the host's work included)",
                numbers,
            )
        return Verdict.FASTER, "", numbers
    if high < 1 / MARGIN:
        if not (by_wall < 1):
            return (
                Verdict.INCONCLUSIVE,
                f"slower by the device's clock, but not by this tool's ({by_wall:.2f}x, the host's work included)",
                numbers,
            )
        return Verdict.SLOWER, "", numbers
    within = "contains 1" if low <= 1 <= high else f"comes within {MARGIN - 1:.0%} of 1"
    return Verdict.INCONCLUSIVE, f"the interval {within}", numbers


def in_units(t: float) -> str:
    """Seconds for a person: 1.23 ms."""
    if not math.isfinite(t):
        return str(t)
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(t) >= size:
            return f"{t / size:.4g} {unit}"
    return f"{t / 1e-9:.3g} ns"


def measure(
    reference: WorkerProcess,
    candidate: WorkerProcess,
    cost: float,
    budget: float,
    keep: int,
    timeout: float,
    max_payload: int,
    progress: Callable[[str], None],
) -> Timing:
    """Time both sides, for about `budget` seconds. `cost` is the seconds of a call of the slower side, `keep` how many outputs
    to keep for the judge. Raises Failure."""
    chance = random.SystemRandom()
    sides = {"reference": Times(), "candidate": Times()}
    workers = {"reference": reference, "candidate": candidate}
    long = cost >= LONG
    calls = 1 if long else max(3, min(20, int(ROUND / max(cost, 1e-6))))
    kept: list[Kept] = []
    keep_rounds = set(chance.sample(range(1, MIN_ROUNDS), min(keep, MIN_ROUNDS - 1)))

    def fresh() -> int:
        return chance.randrange(1, 1 << 30)

    def ask(name: str, plan: list[int | None], flush: bool, keep_call: int | None) -> tuple[list[float], float, Any]:
        reply: Reply = workers[name].ask(
            "time", calls=plan, flush=flush, keep=keep_call, seed=0, two=True, timeout=timeout, max_payload=max_payload
        )
        times = reply.header.get("times")
        if not (isinstance(times, list) and len(times) == len(plan) and all(type(t) is float for t in times)):
            raise Failure("channel", "answered with something that is no list of times", role=name)
        return times, reply.wall, reply.value

    def both(number: int, plan: list[int | None], flush: bool, keep_call: int | None, burst: bool) -> None:
        order = ("reference", "candidate") if number % 2 == 0 else ("candidate", "reference")
        outputs = {}
        shift = plan[0] if burst or long else plan[keep_call or 0]
        quiet: list[int | None] = [None] * len(plan) if burst or long else plan
        for name in order:
            # Nothing that the candidate left running may slow the reference down.
            with candidate.paused() if name == "reference" else contextlib.nullcontext():
                if burst or long:
                    workers[name].ask("refill", shift=shift, timeout=timeout)
                times, wall, outputs[name] = ask(name, quiet, flush, keep_call)
            if not burst:
                sides[name].rounds.append(statistics.median(times))
                sides[name].fastest = min(sides[name].fastest, *times, math.inf)
            if burst or long:
                sides[name].walls.append(wall / len(plan))
        if keep_call is not None:
            kept.append(Kept(shift or 0, outputs["reference"], outputs["candidate"], burst))

    for name in workers:  # warm up, unrecorded
        ask(name, [fresh()] if long else [fresh() for _ in range(calls)], True, None)
    start = time.monotonic()
    for number in range(MAX_ROUNDS):
        progress(f"timing, round {number + 1}")
        plan: list[int | None] = [fresh() for _ in range(calls)]
        both(number, plan, True, chance.randrange(calls) if number in keep_rounds else None, False)
        spent = time.monotonic() - start
        if (number + 1 >= MIN_ROUNDS and spent > budget) or spent > GIVE_UP:
            break
    if not long:
        length = max(3, min(2000, int(BURST / max(cost, 1e-6))))
        kept_burst = chance.randrange(BURSTS)
        for number in range(BURSTS):
            progress(f"timing, burst {number + 1}")
            both(
                number,
                [fresh()] + [None] * (length - 1),
                False,
                chance.randrange(length) if number == kept_burst else None,
                True,
            )
    verdict, note, (ratio, low, high, coverage) = decide(sides["reference"], sides["candidate"])
    return Timing(sides["reference"], sides["candidate"], ratio, low, high, coverage, calls, verdict, note, kept)
