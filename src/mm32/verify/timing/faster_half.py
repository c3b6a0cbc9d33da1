"""What windows say of a process: by the faster half of them. Pure functions of numbers.

What disturbs a window makes it longer, never shorter: other programs, the driver's work for another card, an interrupt. On
shared machines that is a fifth to a third of all windows, by up to ten times, while the fastest three quarters of them lie
within a percent. So a process's time is the mean of its faster half (of logarithms), and what it may be off by does not depend
on the slower one. As with a median, up to half of the windows may be anything.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

LOW_RANK = 0.15  # of a side's windows, about: the share that is faster than the lower end of `ratio`
TAIL = 0.005  # chance of identical code to lie beyond one end of `ratio`


@dataclass(frozen=True)
class Interval:
    """Of ratios: the estimate, an interval, and its coverage."""

    ratio: float
    low: float
    high: float
    coverage: float


def level(times: Sequence[float]) -> float:
    """The logarithm of a process's time: the mean of those of its faster half."""
    half = sorted(times)[: (len(times) + 1) // 2]
    return math.fsum(map(math.log, half)) / len(half)


def typical(times: Sequence[float]) -> float:
    """The same as a time."""
    return math.exp(level(times))


def error(times: Sequence[float]) -> float:
    """The standard error of `level`, of three times or more: that of a mean trimmed on one side (Tukey and McLaughlin, 1963)."""
    logs = sorted(map(math.log, times))
    count, half = len(logs), (len(logs) + 1) // 2
    winsorized = logs[:half] + [logs[half - 1]] * (count - half)
    return statistics.stdev(winsorized) / (half / count * math.sqrt(count))


def ratio(some: Sequence[float], others: Sequence[float]) -> Interval:
    """Of as many times of two processes, by how many times the second is faster; the ends from order statistics.

    The ends are exact, whatever the noise is, if it is the same for both but for a factor, and windows are independent: they
    compare the few fastest of one side with the end of the other's faster half (a precedence test: Balakrishnan and Ng,
    "Precedence-Type Tests and Applications", 2006).
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


@lru_cache(None)
def ranks(count: int) -> tuple[int, int, float]:
    """Of the windows that `ratio` compares, by their order from the fastest, one and another one; and the chance that of `count`
    windows of identical code the second side's one of the latter rank is faster than the first side's one of the former. Of few
    windows it is more than TAIL."""
    low = max(1, round(LOW_RANK * count))
    for high in range(low, count + 1):
        if (tail := _precedes(count, low, high)) <= TAIL:
            return low, high, tail
    return 1, count, _precedes(count, 1, count)


def _precedes(count: int, low: int, high: int) -> float:
    """The chance that at least `high` of one side are among the `low` + `high` - 1 fastest of both."""
    drawn = low + high - 1
    ways = sum(math.comb(count, k) * math.comb(count, drawn - k) for k in range(high, min(count, drawn) + 1))
    return ways / math.comb(2 * count, drawn)
