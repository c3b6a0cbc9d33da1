"""A process's time by the faster half of its windows, and the ratio of two processes."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from mm32.verify.timing import faster_half, sequential


def test_the_slower_half_does_not_count() -> None:
    assert faster_half.typical([2.0]) == 2.0
    assert faster_half.typical([4.0, 1.0, 2.0, 100.0]) == pytest.approx(math.sqrt(2))
    assert faster_half.typical([3.0] * 6 + [50.0] * 5) == pytest.approx(3.0)
    assert faster_half.error([3.0] * 6 + [50.0] * 5) == 0.0


def test_the_middle_is_where_most_windows_are() -> None:
    def middle(*logs: float) -> float:
        return faster_half.middle([math.exp(x) for x in logs], [1.0] * len(logs))

    assert middle(1.0) == 1.0
    assert middle(1.0, 2.0, 4.0) == pytest.approx(2.25)
    assert middle(*[0.0] * 9, 100.0) == 0.0
    assert faster_half.middle_error([1.0], [1.0]) == math.inf
    chance = random.Random(2)
    sides = [[math.exp(chance.gauss(0, 0.02)) for _ in range(400)] for _ in range(2)]
    assert faster_half.middle_error(*sides) == pytest.approx(0.02 * math.sqrt(2 / 400), rel=0.15)


@pytest.mark.parametrize("late", [0.0, 0.35])
def test_its_error_is_what_it_varies_by(late: float) -> None:
    chance = random.Random(str(late))

    def window() -> float:
        return math.exp(chance.gauss(0, 0.05) + (chance.expovariate(2) if chance.random() < late else 0.0))

    found = [[window() for _ in range(24)] for _ in range(1000)]
    varies = statistics.stdev(map(faster_half.level, found))
    assert statistics.fmean(map(faster_half.error, found)) == pytest.approx(varies, rel=0.1)


@pytest.mark.parametrize("count", sorted(sequential.LOOKS))
def test_most_windows_decide(count: int) -> None:
    low, high, _ = faster_half.ranks(count)
    assert 2 * high >= count
    assert high <= max(0.6 * count, 6)
    assert low <= 0.4 * count


def test_the_ends_of_a_ratio_are_order_statistics() -> None:
    low, high, tail = faster_half.ranks(16)
    assert (low, high) == (2, 9)
    # At least 9 of the 10 fastest of both sides are of one side: all 10 of them, or 9.
    assert tail == pytest.approx((math.comb(16, 10) + math.comb(16, 9) * 16) / math.comb(32, 10))
    some, others = [float(i) for i in range(101, 117)], [float(i) for i in range(51, 67)]
    found = faster_half.ratio(some[::-1], others)
    assert (found.low, found.high) == (102 / 59, 109 / 52)
    assert found.low < found.ratio < found.high
    assert found.coverage == 1 - 2 * tail


@pytest.mark.parametrize("count", sorted(sequential.LOOKS))
def test_identical_code_lies_within_as_often_as_is_said(count: int) -> None:
    """This holds whatever the noise is: here it has two modes, and a tail."""
    chance = random.Random(count)

    def window() -> float:
        return math.exp(chance.gauss(0, 0.01) + chance.choice((0.0, 0.3)) + chance.expovariate(5))

    outside = 0
    for _ in range(1000):
        found = faster_half.ratio([window() for _ in range(count)], [window() for _ in range(count)])
        outside += not found.low <= 1 <= found.high
    assert outside <= 1000 * (1 - found.coverage) + 4 * math.sqrt(1000 * (1 - found.coverage))
    assert 1 - found.coverage <= 2 * faster_half.TAIL
