"""Tell whether a small difference is the code's or the processes', by several processes of each side. Pure functions of numbers.

Two processes that run the same code may differ for as long as they live, and no number of windows can tell that from
faster code. So where the first three processes (reference, candidate and control) show a small difference, fresh ones
take their places a few times. Three such processes are a group, and a group is one sample: the candidate's time against both
processes of the reference. How much groups vary, be it because of processes or of windows, is seen in the groups themselves: in
the samples, and in the difference between the two processes of the reference, which would be 0 without such variation.
tests/verify/timing/test_several.py simulates the rule.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from . import faster_half, sequential
from .faster_half import Interval
from .sequential import Outcome

SIDES = ("reference", "control", "candidate")  # the processes of a group
# By the number of groups: how many standard errors the interval's ends are from the mean. Chosen by simulation, since there are
# several looks: in all looks together at most 1 % of identical code is called FASTER or SLOWER, as long as processes differ by a
# standard deviation of at most 3 % each (tests/support/verify/simulated_processes.py).
ERRORS = {1: math.inf, 2: 12.0, 3: 6.0, 4: 4.4, 5: 3.8, 6: 3.4, 7: 3.1, 8: 2.85, 9: 2.65, 10: 2.45}
MOST = max(ERRORS)
# The same for a look after which there is no time for another.
LAST = {**ERRORS, 3: 5.5, 4: 3.9, 5: 3.4, 6: 3.0, 7: 2.8, 8: 2.65, 9: 2.55}
# By the number of groups: how many standard errors their ratio by all windows has to be beyond the margin as well. It is
# Student's t at 97.5 %.
BORNE_OUT = {2: 12.7, 3: 4.3, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
COVERAGE = 0.97  # the least coverage of the interval
# Differences that groups do not average out may be this large: a candidate's processes are confined, the reference's are not.
MARGIN = 1.01
# Several processes are timed where the first estimate is between these: a smaller difference cannot be told, and a larger one is
# not due to processes.
LEAST, LARGE = 1.01, 1.15
HOPE = 1.05  # the speedup that further groups would have to show to be worth their time
PRECISE = 0.015  # the standard error of a group's sample that its windows alone should leave
FEWEST, ENOUGH = 8, 48  # the least and the most rounds of a group
HOPED_ERROR = 0.6  # the share of the standard error seen so far that is hoped for: it may have come out too large
# By the number of groups: how many standard errors further groups may lie from the mean so far, which two groups tell less well.
REACH = {2: 2.5, **dict.fromkeys(range(3, MOST), 1.0)}


@dataclass(frozen=True)
class Group:
    """What three processes say, as logarithms.

    `ratio`: both processes of the reference over the candidate; `control`: one process of the reference over the other. Both are
    by the faster halves of windows; `middle` is the ratio by all windows."""

    ratio: float
    control: float
    middle: float


def group(reference: Sequence[float], control: Sequence[float], candidate: Sequence[float]) -> Group:
    """Return the Group of these positive times, given round by round.

    Each process of the reference is compared with the candidate separately, for `middle` too: noise that only delays would make
    the middle of differences from a mean of two processes positive.
    """
    one, other, theirs = (faster_half.level(times) for times in (reference, control, candidate))
    middles = [faster_half.middle(side, candidate) for side in (reference, control)]
    return Group((one + other) / 2 - theirs, one - other, statistics.fmean(middles))


def noise(reference: Sequence[float], control: Sequence[float], candidate: Sequence[float]) -> float:
    """Return the noise that a round's windows add to a group's ratio: its standard error by n rounds is this over root n."""
    one, other, theirs = (faster_half.error(times) for times in (reference, control, candidate))
    return math.sqrt(len(candidate) * ((one**2 + other**2) / 4 + theirs**2))


def rounds_needed(noise: float) -> int:
    """Return how many rounds leave a standard error of PRECISE."""
    if not math.isfinite(noise):
        return ENOUGH
    return max(FEWEST, min(ENOUGH, math.ceil((noise / PRECISE) ** 2)))


def is_hopeless(ratio: float, noise: float, rounds: int) -> bool:
    """Return whether windows vary so much that more groups are of no use.

    MOST groups of `rounds` rounds would then not tell a gain of HOPE, or of the first group's `ratio` if that is larger, however
    alike the processes were."""
    error = HOPED_ERROR * noise / math.sqrt(rounds * MOST)
    return max(abs(ratio), math.log(HOPE)) < math.log(MARGIN) + ERRORS[MOST] * error


def small(ratio: float) -> bool:
    """Return whether a first estimate, a logarithm, is one for which several processes are timed."""
    return math.log(LEAST) <= abs(ratio) <= math.log(LARGE)


def first_is_over(
    reference: Sequence[float], control: Sequence[float], candidate: Sequence[float], device: str
) -> bool:
    """Return whether the first group needs no more rounds where further groups can follow.

    That is so if the rule for one group has decided, if the difference is small and known well enough to be one sample of
    several, or if it is next to nothing and surely less than HOPE."""
    times = reference, control, candidate
    rounds = len(candidate)
    if rounds not in sequential.LOOKS:
        return False
    if sequential.decided(*times, device):
        return True
    if sequential.LOOKS[rounds] > 1:
        return False
    ratio = group(*times).ratio
    if small(ratio):
        return rounds >= min(rounds_needed(noise(*times)), sequential.USUAL)
    found = sequential.look(*times, device).interval
    return abs(ratio) < math.log(LEAST) and found.low > 1 / HOPE and found.high < HOPE


def _error(groups: Sequence[Group]) -> float:
    """Return the standard error of the mean of the ratios of two or more groups."""
    n = len(groups)
    mean = statistics.fmean(one.ratio for one in groups)
    # A group's ratio has the variance of one process and half of another's, its control that of two processes.
    own = sum((one.ratio - mean) ** 2 for one in groups) / 1.5
    pooled = (own + sum(one.control**2 for one in groups) / 2) / (2 * n - 1)
    # The candidate's processes may vary more than the reference's.
    return math.sqrt(1.5 * max(pooled, own / (n - 1)) / n)


def interval(groups: Sequence[Group], last: bool = False) -> Interval:
    """Return the interval of the candidate's speedup by these groups, at most MOST, by the faster halves of their windows."""
    n, mean = len(groups), statistics.fmean(one.ratio for one in groups)
    if n < 2:
        return Interval(math.exp(mean), 0.0, math.inf, COVERAGE)
    width = (LAST if last else ERRORS)[n] * _error(groups)
    return Interval(math.exp(mean), math.exp(mean - width), math.exp(mean + width), COVERAGE)


def look(groups: Sequence[Group], last: bool = False) -> Outcome:
    """Return what these groups, at most MOST, say of the candidate. `last`: whether there will be no other look.

    A candidate whose windows vary more than the reference's has a faster half that is faster. So all of its windows have to bear
    the result out, but less surely, since other programs make some windows late.
    """
    n, found = len(groups), interval(groups, last)
    if n < 2:
        return Outcome("unclear", found, MARGIN)
    whole = statistics.fmean(one.middle for one in groups)
    doubt = BORNE_OUT[n] * statistics.stdev(one.middle for one in groups) / math.sqrt(n)
    return Outcome(sequential.conclusion(found, MARGIN, whole, doubt, MARGIN), found, MARGIN)


def is_over(groups: Sequence[Group]) -> bool:
    """Return whether no further group is needed: it is clear, or all are there, or the rest could hardly make it clear."""
    n = len(groups)
    if n < 2:
        return not small(groups[0].ratio)
    if n >= MOST or look(groups).says != "unclear":
        return True
    mean = abs(statistics.fmean(one.ratio for one in groups))
    found = _error(groups)
    further = max(mean, min(math.log(HOPE), mean + REACH[n] * found))
    hoped = (n * mean + (MOST - n) * further) / MOST
    error = HOPED_ERROR * found * math.sqrt(n / MOST)
    return hoped < math.log(MARGIN) + ERRORS[MOST] * error
