"""What windows say of a process: by the faster half of them. Pure functions of numbers.

What disturbs a window makes it longer, never shorter: other programs, the driver's work for another card, an interrupt. On
shared machines that is a fifth to a third of all windows, by up to ten times, while the fastest three quarters of them lie
within a percent. So a process's time is the mean of its faster half (of logarithms), and what it may be off by does not depend
on the slower one. As with a median, up to half of the windows may be anything. `middle` is of all windows, for comparison.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

MOST = 0.57  # of a side's windows that decide an end of `ratio`, as far as TAIL allows; half of them at least
TAIL = 0.005  # chance of identical code to lie beyond one end of `ratio`


@dataclass(frozen=True)
class Interval:
    """Of a ratio, or another number: the estimate, an interval, and its coverage."""

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
    """The standard error of `level`: that of a mean trimmed on one side (Tukey and McLaughlin, 1963). Infinite for one time."""
    if len(times) < 2:
        return math.inf
    logs = sorted(map(math.log, times))
    count, half = len(logs), (len(logs) + 1) // 2
    winsorized = logs[:half] + [logs[half - 1]] * (count - half)
    return statistics.stdev(winsorized) / (half / count * math.sqrt(count))


def ratio(some: Sequence[float], others: Sequence[float]) -> Interval:
    """Of as many times of two processes, by how many times the second is faster; the ends from order statistics.

    The ends compare what a fifth of one side's windows are faster than with what most of the other's are (a precedence
    test: Balakrishnan and Ng, "Precedence-Type Tests and Applications", 2006): of 16 windows, the second fastest with the
    ninth. Their coverage is exact, whatever the noise is, if it is the same for both but for a factor, and windows are
    independent. Where a side's noise is larger, in both directions, the estimate is off by 0.8 of the difference, but the
    ends hardly are: the majority of a side's windows decides.
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
    """The logarithm of by how many times the second process is faster by all windows, round by round: the median of the means of
    all pairs (Hodges and Lehmann, 1963), in which most of what is slower than usual counts."""
    logs = _apart(some, others)
    return statistics.median((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])


def middle_error(some: Sequence[float], others: Sequence[float]) -> float:
    """About the standard error of `middle`, by the rounds' quartiles; infinite for one round."""
    if len(some) < 2:
        return math.inf
    low, _, high = statistics.quantiles(_apart(some, others), n=4)
    return (high - low) / 1.349 / math.sqrt(len(some))


def _apart(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return [math.log(a / b) for a, b in zip(some, others, strict=True)]


@lru_cache(None)
def ranks(count: int) -> tuple[int, int, float]:
    """Of the windows that `ratio` compares, by their order from the fastest, one and another one, which half of them at least
    are as fast as; and the chance that of `count` windows of identical code the second side's one of the latter rank is faster
    than the first side's one of the former. Of few windows it is more than TAIL."""
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
    """The chance that at least `high` of one side are among the `low` + `high` - 1 fastest of both."""
    drawn = low + high - 1
    ways = sum(math.comb(count, k) * math.comb(count, drawn - k) for k in range(high, min(count, drawn) + 1))
    return ways / math.comb(2 * count, drawn)
