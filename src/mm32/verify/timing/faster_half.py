"""Estimate a process's time, and the ratio of two, by the faster half of the windows. Pure functions of numbers.

A disturbance makes a window longer, never shorter: other programs, the driver's work for another card, an interrupt. On
shared machines a fifth to a third of all windows are disturbed, by up to ten times, while the fastest three quarters lie
within a percent. So a process's time is the mean (of logarithms) of the faster half of its windows, and the error of that
does not depend on the slower half. As with a median, up to half of the windows may have any length. `middle` uses all windows,
for comparison.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

# The largest share of a side's windows that decides an end of `ratio`, unless TAIL needs more; at least half of them decide.
MOST = 0.57
TAIL = 0.005  # the chance that identical code lies beyond one end of `ratio`


@dataclass(frozen=True)
class Interval:
    """An estimate, of a ratio (or another number), with an interval from `low` to `high` and the interval's coverage."""

    ratio: float
    low: float
    high: float
    coverage: float


def level(times: Sequence[float]) -> float:
    """Return the logarithm of a process's time: the mean of the logarithms of the faster half of its windows."""
    half = sorted(times)[: (len(times) + 1) // 2]
    return math.fsum(map(math.log, half)) / len(half)


def typical(times: Sequence[float]) -> float:
    """Return a process's time: `level` as a time instead of a logarithm."""
    return math.exp(level(times))


def error(times: Sequence[float]) -> float:
    """The standard error of `level`: that of a mean trimmed on one side (Tukey and McLaughlin, 1963). Infinite for one time."""
    if len(times) < 2:
        return math.inf
    logs = sorted(map(math.log, times))
    count, half = len(logs), (len(logs) + 1) // 2
    winsorized = logs[:half] + [logs[half - 1]] * (count - half)
    return statistics.stdev(winsorized) / (half / count * math.sqrt(count))


def ratio(some: Sequence[float], others: Sequence[float]) -> Interval:
    """Return by how many times the second of two processes is faster, from equally many times of each.

    The interval's ends are order statistics. Each compares the time that a fifth of one side's windows beat with the time that
    most of the other side's beat (a precedence test: Balakrishnan and Ng, "Precedence-Type Tests and Applications", 2006): of
    16 windows, the second fastest with the ninth. The coverage is exact, whatever the noise is, if the noise is the same for
    both sides but for a factor, and windows are independent. Where one side's noise is larger, in both directions, the
    estimate is off by 0.8 of the difference, but the ends hardly are: the majority of a side's windows decides.
    """
    first, second = sorted(some), sorted(others)
    low, high, tail = ranks(len(first))
    estimate = math.exp(level(first) - level(second))
    return Interval(
        estimate,
        min(estimate, first[low - 1] / second[high - 1]),
        max(estimate, first[high - 1] / second[low - 1]),
        1 - 2 * tail,
    )


def middle(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the logarithm of the ratio by all windows, round by round: by how many times the second process is faster.

    It is the median of the means of all pairs (Hodges and Lehmann, 1963), in which most windows slower than usual count."""
    logs = _apart(some, others)
    return statistics.median((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])


def middle_error(some: Sequence[float], others: Sequence[float]) -> float:
    """Return about the standard error of `middle`, by the rounds' quartiles; infinite for one round."""
    if len(some) < 2:
        return math.inf
    low, _, high = statistics.quantiles(_apart(some, others), n=4)
    return (high - low) / 1.349 / math.sqrt(len(some))


def _apart(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return [math.log(a / b) for a, b in zip(some, others, strict=True)]


@lru_cache(None)
def ranks(count: int) -> tuple[int, int, float]:
    """Return the two ranks of windows that `ratio` compares, counted from the fastest, and the chance of an error.

    The second rank is at least half of `count`. The chance is that of `count` windows of identical code on each side, the
    second side's window of the second rank is faster than the first side's of the first rank. For few windows it is more than
    TAIL."""
    found = [
        (low, high, tail)
        for low in range(1, count + 1)
        for high in range((count + 1) // 2, count + 1)
        if (tail := _precedes(count, low, high)) <= TAIL
    ]
    if not found:
        return 1, count, _precedes(count, 1, count)
    most = max(MOST * count, min(high for _, high, _ in found))
    return max((one for one in found if one[1] <= most), key=lambda one: (one[0], -one[1]))


def _precedes(count: int, low: int, high: int) -> float:
    """Return the chance that at least `high` windows of one side are among the `low` + `high` - 1 fastest of both."""
    drawn = low + high - 1
    ways = sum(math.comb(count, k) * math.comb(count, drawn - k) for k in range(high, min(count, drawn) + 1))
    return ways / math.comb(2 * count, drawn)
