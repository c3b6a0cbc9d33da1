"""Whether windows of one call bear out what windows of many calls claim. Pure functions of numbers.

A worker sees the inputs of all calls of a window when the window begins. A candidate that reads them ahead may compute many
small calls as one batch, and every output is right. No caller of single calls would see that gain. So before FASTER is said,
windows of one call are timed, in which there is nothing to read ahead.

A call by itself takes longer, on both sides: caches are cold, and nothing overlaps. That pulls the ratio towards 1, but leaves
the difference: a candidate saves about as much in a call by itself as in a call of a long window. So the rule uses differences:
in each round, the mean of both processes of the reference minus the candidate. The time of exchanging data cancels.
tests/verify/timing/test_one_call.py simulates it.

Measured on a CPU: calls of 150 to 700 us take 50 to 250 us longer by themselves. In a call by itself, 15 honest candidates saved
0.5 to 2.4 times what they claim, and five that read ahead saved -0.7 to 0.1 times. It has not been measured on a card.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .faster_half import Interval

PART = 0.5  # the share of what is saved in a call of a long window that a call by itself has to save
# By itself, a call of the candidate may lose more time than one of the reference, by this share of what that one loses: other
# code is cold too.
COLD = 0.25
# Seconds a call by which one launcher of kernels may be slower than another; in long windows a GPU's work hides them.
HIDDEN = {"cpu": 0.0, "cuda": 50e-6}
# By the number of rounds at a look: the rank, from below and from above, of the differences that are the interval's ends.
RANKS = {8: 1, 12: 2, 16: 4, 20: 5, 25: 7, 30: 9, 40: 14, 60: 22, 90: 35, 120: 48}
MOST = max(RANKS)
BUDGET = 2.0  # seconds after which no further round begins, if there are enough for a look
# Where a call takes fewer seconds, a window that does not count warms its process up before each one that counts.
BRIEF = 0.01

AGREES, CONTRADICTS, DOUBTS, UNCLEAR = "agrees", "contradicts", "doubts", "cannot tell"
# The least claimed speedup that can be doubted: what windows of one call save is then mostly above their noise. In simulations
# with times that vary by as much as a call takes, no honest gain of 1.5 to 16 times is doubted, and most candidates that read
# ahead are.
LARGE = 1.25


@dataclass(frozen=True)
class OneCall:
    """The outcome of windows of one call.

    `ratio`, `low`, `high`: the median of reference over candidate, net of the exchange of data, and its interval.
    `saved`: seconds that the candidate saves in a call: the median and its interval.
    `wanted`: saved seconds that bear the claim out.
    `needed`: saved seconds below which they contradict the claim; it allows for cold code.
    `says`: AGREES, CONTRADICTS, DOUBTS (the claim is large; the middle of the interval contradicts it, the end does not), or
    UNCLEAR."""

    ratio: float
    low: float
    high: float
    saved: Interval
    wanted: float
    needed: float
    rounds: int
    says: str

    def record(self) -> dict[str, Any]:
        """For the report."""
        return {
            "says": self.says,
            "speedup": self.ratio,
            "interval": [self.low, self.high],
            "saved_s": self.saved.ratio,
            "saved_interval_s": [self.saved.low, self.saved.high],
            "wanted_s": self.wanted,
            "needed_s": self.needed,
            "rounds": self.rounds,
        }


@dataclass(frozen=True)
class Claim:
    """What windows of many calls say.

    `seconds`: net seconds of a call of the reference; `ratio`: the speedup; `low`: the lower end of its interval."""

    seconds: float
    ratio: float
    low: float

    def saved(self, alone: float) -> float:
        """Return the seconds that the candidate claims to save of a call of the reference.

        They are a part of `seconds`, or of `alone` if a call of the reference by itself takes less, say because its data are
        still in a cache. The speedup taken lies between the estimate, which is what people read, and the lower end, which is what
        is certain."""
        return min(self.seconds, max(alone, 0.0)) * (1 - 1 / math.sqrt(self.ratio * self.low))


def order_interval(values: Sequence[float], rank: int) -> Interval:
    """Return the median, with the interval from the `rank`-th smallest value to the `rank`-th largest and its exact coverage.

    Assumes only that values are independent."""
    ordered = sorted(values)
    n = len(ordered)
    tail = sum(math.comb(n, i) for i in range(rank)) / 2.0**n
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[n - rank], max(0.0, 1 - 2 * tail))


def look(
    walls: dict[str, Sequence[float]], nets: dict[str, Sequence[float]], claim: Claim, device: str
) -> OneCall | None:
    """Return what these rounds of windows of one call say; None where they are too few.

    `walls`: times by whole windows; `nets`: net times."""
    reference, control, candidate = (walls[name] for name in ("reference", "control", "candidate"))
    reached = max((n for n in RANKS if n <= len(candidate)), default=0)
    if not reached:
        return None
    rank = RANKS[reached]
    saved = order_interval([(a + b) / 2 - c for a, b, c in zip(reference, control, candidate, strict=True)], rank)
    apart = abs(statistics.median(a - b for a, b in zip(reference, control, strict=True)))
    alone = (statistics.median(nets["reference"]) + statistics.median(nets["control"])) / 2
    allowed = COLD * max(0.0, alone - claim.seconds) + HIDDEN[device]
    wanted = PART * claim.saved(alone)
    needed = wanted - allowed - apart
    says = AGREES if saved.low >= wanted else CONTRADICTS if saved.high < needed else UNCLEAR
    if says == UNCLEAR and claim.ratio >= LARGE and saved.ratio < wanted - allowed:
        says = DOUBTS
    mean = [(a + b) / 2 for a, b in zip(nets["reference"], nets["control"], strict=True)]
    ratio = order_interval([a / c for a, c in zip(mean, nets["candidate"], strict=True)], rank)
    return OneCall(ratio.ratio, ratio.low, ratio.high, saved, wanted, needed, reached, says)
