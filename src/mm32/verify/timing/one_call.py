"""Whether windows of one call bear out what windows of many calls claim. Pure functions of numbers.

A worker sees the inputs of all calls of a window when the window begins. A candidate that reads them ahead may compute many
small calls as one batch, and every output is right. No caller of single calls would see that gain. So before FASTER is said,
windows of one call are timed, in which there is nothing to read ahead.

A call by itself takes longer, on both sides: caches are cold, and nothing overlaps. That pulls the ratio towards 1, but it
leaves the difference: what a candidate saves in a call of a long window it saves in a call by itself as well, about. So the rule
is on differences. In each round it is the mean of both processes of the reference less the candidate; what the exchange of data
takes cancels. tests/verify/timing/test_one_call.py simulates it.

Measured on a CPU: calls of 150 to 700 us take 50 to 250 us longer by themselves. 15 honest candidates saved in a call by itself
0.5 to 2.4 times what they claim, five that read ahead -0.7 to 0.1 times. On a card it has not been measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .faster_half import Interval

PART = 0.5  # of what is saved in a call of a long window that a call by itself has to save
# Of what a call of the reference takes longer by itself, so much a candidate's may take longer still: other code is cold too.
COLD = 0.25
# Seconds of a call that a GPU's work hides in long windows, and that one launcher of kernels takes longer than another.
HIDDEN = {"cpu": 0.0, "cuda": 50e-6}
# Rounds at a look: the ranks, from below and from above, of the differences that are the interval's ends.
RANKS = {8: 1, 12: 2, 16: 4, 20: 5, 25: 7, 30: 9, 40: 14, 60: 22, 90: 35, 120: 48}
MOST = max(RANKS)
BUDGET = 2.0  # seconds after which no round is begun once there was a look
BRIEF = 0.01  # seconds of a call, below which another one warms its process up before each that counts

AGREES, CONTRADICTS, DOUBTS, UNCLEAR = "agrees", "contradicts", "doubts", "cannot tell"
# A speedup, from which on a doubt counts: what is saved in windows of one call is above their noise then, mostly. In simulations
# with times that vary by as much as a call takes, no honest gain of 1.5 to 16 times is doubted, and most that read ahead are.
LARGE = 1.25


@dataclass(frozen=True)
class OneCall:
    """What windows of one call come to. `ratio`, `low`, `high`: reference over candidate, net of the exchange of data, with the
    interval of their median. `saved`: seconds of a call, in the middle and at the ends of their interval. `wanted`: seconds that
    bear the claim out; below `needed`, which allows for what is cold, they contradict it. `says`: AGREES, CONTRADICTS, DOUBTS
    (the middle of a large claim's interval contradicts it, its end does not), or UNCLEAR."""

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
    """What windows of many calls say: seconds of a call of the reference, net; the speedup, and the lower end of its interval."""

    seconds: float
    ratio: float
    low: float

    def saved(self, alone: float) -> float:
        """Seconds of a call that the candidate saves, of `alone` if a call of the reference by itself takes less: where its data
        are still in a cache, say. Between the speedup, which is what is read, and the lower end, which is what is sure."""
        return min(self.seconds, max(alone, 0.0)) * (1 - 1 / math.sqrt(self.ratio * self.low))


def order_interval(values: Sequence[float], rank: int) -> Interval:
    """The median, and an interval of it from the smallest but `rank` - 1 to the largest but as many, with its exact coverage.
    Assumes only that values are independent."""
    ordered = sorted(values)
    n = len(ordered)
    tail = sum(math.comb(n, i) for i in range(rank)) / 2.0**n
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[n - rank], max(0.0, 1 - 2 * tail))


def look(
    walls: dict[str, Sequence[float]], nets: dict[str, Sequence[float]], claim: Claim, device: str
) -> OneCall | None:
    """What can be said by these rounds of windows of one call, by whole windows and net; None where they are too few."""
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
