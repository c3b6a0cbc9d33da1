"""When to stop timing, and what to say then: a sequential rule on the rounds' ratios. Pure functions of numbers.

In each round every process is timed once: the reference, the candidate and the control, a second process of the reference. A
round's ratio is the reference's net time over another one's. After certain numbers of rounds the rule looks at the ratios, as
logarithms: their interval from order statistics must lie beyond a margin, and beyond the interval of the control's ratios,
which are 1 but for noise. The earlier the look, the larger the margin, so that only what is clear ends early. Nothing is
assumed of the noise but that rounds are independent. tests/verify/test_sequential.py simulates identical code (at most 1 %
may be called FASTER or SLOWER) and code that is 5 % faster.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Rounds at a look: the ranks, from below and from above, of the ratios that are the interval's ends; and the margin.
LOOKS: dict[int, tuple[int, float]] = {
    5: (1, 2.0),
    8: (1, 1.2),
    12: (2, 1.0),
    16: (4, 1.0),
    20: (5, 1.0),
    25: (7, 1.0),
    30: (9, 1.0),
    40: (14, 1.0),
    60: (22, 1.0),
    90: (35, 1.0),
    120: (48, 1.0),
}
USUAL = 40  # rounds; more only where they promise to tell something: where the interval's ends are within NARROW
NARROW = 1.2
WELL_KNOWN = 16  # rounds
MIN_ROUNDS = min(LOOKS)
MAX_ROUNDS = max(LOOKS)
# Two processes that run the same code differ by more than their own rounds do (where memory and threads are placed), on a
# CPU by a few percent. No margin is smaller than these; docs/verifying.md has the measurements.
MARGIN = {"cpu": 1.1, "cuda": 1.02}


@dataclass(frozen=True)
class Interval:
    """Of ratios: their median, the interval of the median from order statistics, and its exact coverage."""

    ratio: float
    low: float
    high: float
    coverage: float


@dataclass(frozen=True)
class Outcome:
    """What a look says: "faster", "slower" or "unclear"; the ratios' interval; the margin that it was held to."""

    says: str
    interval: Interval
    margin: float


def order_interval(values: Sequence[float], rank: int) -> Interval:
    """From the smallest but `rank` - 1 to the largest but as many. Assumes only that values are independent."""
    ordered = sorted(values)
    n = len(ordered)
    tail = sum(math.comb(n, i) for i in range(rank)) / 2.0**n
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[n - rank], max(0.0, 1 - 2 * tail))


def look(ratios: Sequence[float], control: Sequence[float], device: str) -> Outcome:
    """What can be said of positive `ratios` (reference : candidate) beside those of the control, at the last look reached.

    Fewer than MIN_ROUNDS ratios are never clear.
    """
    reached = max((n for n in LOOKS if n <= len(ratios)), default=0)
    if not reached:
        return Outcome("unclear", order_interval(ratios, 1), math.inf)
    rank, margin = LOOKS[reached]
    found = order_interval(ratios, rank)
    margin = max(margin, MARGIN[device], _noise(control, reached, rank))
    says = "faster" if found.low > margin else "slower" if found.high < 1 / margin else "unclear"
    return Outcome(says, found, margin)


def _noise(control: Sequence[float], reached: int, rank: int) -> float:
    """What two processes of the reference differ by, as a ratio above 1: at early looks the far end of the interval, later, where
    the median is known well, twice its distance from 1."""
    found = order_interval(control, rank)
    if reached < WELL_KNOWN:
        return max(found.high, 1 / found.low)
    return max(found.ratio, 1 / found.ratio) ** 2


def promising(ratios: Sequence[float], control: Sequence[float], device: str) -> bool:
    """Whether the interval is narrow and leaves out 1 but is not clear of the margin: more rounds may tell a small difference."""
    outcome = look(ratios, control, device)
    low, high = outcome.interval.low, outcome.interval.high
    return outcome.says == "unclear" and not low <= 1 <= high and high <= NARROW * low


def decided(ratios: Sequence[float], control: Sequence[float], device: str) -> bool:
    """Whether no more rounds are needed: at a look, and clear, or clearly within the margin; or after the USUAL ones not
    promising."""
    if len(ratios) not in LOOKS:
        return False
    outcome = look(ratios, control, device)
    if len(ratios) >= USUAL and not promising(ratios, control, device):
        return True
    smallest = MARGIN[device]
    within = 1 / smallest < outcome.interval.low and outcome.interval.high < smallest
    return outcome.says != "unclear" or (within and LOOKS[len(ratios)][1] <= 1)
