"""Whether a small difference is the code's or the processes': a rule on several processes of each side, of numbers alone.

Two processes that run the same code may differ for as long as they live, and no number of windows tells that from
code that is faster. So where the first three processes (reference, candidate and control) leave a small difference, fresh ones
take their places a few times. What three of them say, a group, is one sample: the candidate's time against both
processes of the reference. What groups vary by, be it processes or windows, is seen in them: in the samples, and in what the
two processes of the reference differ by, which is 0 but for that. tests/verify/timing/test_several.py simulates the rule.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from . import faster_half, sequential
from .faster_half import Interval
from .sequential import Outcome

SIDES = ("reference", "control", "candidate")  # of a group
# By groups: how many standard errors the interval's ends are from the mean. Chosen by simulation, since there are several looks:
# of identical code, 1 % at most is called FASTER or SLOWER in all of them together, as long as processes differ by a standard
# deviation of 3 % each at most (tests/support/verify/simulated_processes.py).
ERRORS = {1: math.inf, 2: 12.0, 3: 6.0, 4: 4.4, 5: 3.8, 6: 3.4, 7: 3.1, 8: 2.85, 9: 2.65, 10: 2.45}
MOST = max(ERRORS)
# Of a look after which there is no time for another.
LAST = {**ERRORS, 3: 5.5, 4: 3.9, 5: 3.4, 6: 3.0, 7: 2.8, 8: 2.65, 9: 2.55}
# Student's t at 97.5 %, of as many groups: standard errors that their ratio by all windows has to be beyond the margin as well.
BORNE_OUT = {2: 12.7, 3: 4.3, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
COVERAGE = 0.97  # of the interval, at least
# What groups do not average out (a candidate's processes are confined, the reference's are not) may be that much.
MARGIN = 1.01
# First estimates between which several processes are asked: a smaller difference is not told, a larger one is no process's.
LEAST, LARGE = 1.01, 1.15
HOPE = 1.05  # what further groups would have to say to be worth their time
PRECISE = 0.015  # standard error of a group's sample that its windows alone should leave
FEWEST, ENOUGH = 8, 48  # rounds of a group
HOPED_ERROR = 0.6  # of the standard error seen so far: it may have come out too large
# How many of these errors further groups may lie from the mean so far: of two groups it is known less well.
REACH = {2: 2.5, **dict.fromkeys(range(3, MOST), 1.0)}


@dataclass(frozen=True)
class Group:
    """What three processes say, as logarithms: `ratio`, both of the reference's over the candidate; `control`, one of the
    reference's over the other, both by the faster halves of windows; `middle`, the ratio by all of them."""

    ratio: float
    control: float
    middle: float


def group(reference: Sequence[float], control: Sequence[float], candidate: Sequence[float]) -> Group:
    """Of a group's positive times, round by round.

    Each process of the reference is compared with the candidate by itself, in the middle too: noise that only delays makes the
    middle of differences from a mean of two processes positive.
    """
    one, other, theirs = (faster_half.level(times) for times in (reference, control, candidate))
    middles = [faster_half.middle(side, candidate) for side in (reference, control)]
    return Group((one + other) / 2 - theirs, one - other, statistics.fmean(middles))


def noise(reference: Sequence[float], control: Sequence[float], candidate: Sequence[float]) -> float:
    """What the windows of a round add to a group's ratio: its standard error by n rounds is this over the root of n."""
    one, other, theirs = (faster_half.error(times) for times in (reference, control, candidate))
    return math.sqrt(len(candidate) * ((one**2 + other**2) / 4 + theirs**2))


def rounds_needed(noise: float) -> int:
    """How many rounds leave PRECISE."""
    if not math.isfinite(noise):
        return ENOUGH
    return max(FEWEST, min(ENOUGH, math.ceil((noise / PRECISE) ** 2)))


def is_hopeless(ratio: float, noise: float, rounds: int) -> bool:
    """Whether windows vary so much that MOST groups of so many rounds would not tell a gain of HOPE, or of what the first one
    says, however alike the processes were."""
    error = HOPED_ERROR * noise / math.sqrt(rounds * MOST)
    return max(abs(ratio), math.log(HOPE)) < math.log(MARGIN) + ERRORS[MOST] * error


def small(ratio: float) -> bool:
    """Whether a first estimate, a logarithm, is one that several processes are asked about."""
    return math.log(LEAST) <= abs(ratio) <= math.log(LARGE)


def first_is_over(
    reference: Sequence[float], control: Sequence[float], candidate: Sequence[float], device: str
) -> bool:
    """Whether the first group needs no more rounds where further groups can follow: by the rule for one group, since the
    difference is small and known well enough to be one sample of several, or since it is next to nothing, and not HOPE."""
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
    """The standard error of the mean of the groups' ratios, two groups or more."""
    n = len(groups)
    mean = statistics.fmean(one.ratio for one in groups)
    # A ratio has the noise of one process and half of another one's, a control's that of two.
    own = sum((one.ratio - mean) ** 2 for one in groups) / 1.5
    pooled = (own + sum(one.control**2 for one in groups) / 2) / (2 * n - 1)
    # The candidate's processes may vary more than the reference's.
    return math.sqrt(1.5 * max(pooled, own / (n - 1)) / n)


def interval(groups: Sequence[Group], last: bool = False) -> Interval:
    """Of the candidate's speedup, by the faster halves of windows of these groups, MOST of them at most."""
    n, mean = len(groups), statistics.fmean(one.ratio for one in groups)
    if n < 2:
        return Interval(math.exp(mean), 0.0, math.inf, COVERAGE)
    width = (LAST if last else ERRORS)[n] * _error(groups)
    return Interval(math.exp(mean), math.exp(mean - width), math.exp(mean + width), COVERAGE)


def look(groups: Sequence[Group], last: bool = False) -> Outcome:
    """What can be said of the candidate by these groups, MOST of them at most. `last`: there will be no other look.

    A candidate whose windows vary more than the reference's has a faster half that is faster: so all of its windows have to bear
    it out, less surely, for some are late by what others do.
    """
    n, found = len(groups), interval(groups, last)
    if n < 2:
        return Outcome("unclear", found, MARGIN)
    whole = statistics.fmean(one.middle for one in groups)
    doubt = BORNE_OUT[n] * statistics.stdev(one.middle for one in groups) / math.sqrt(n)
    return Outcome(sequential.conclusion(found, MARGIN, whole, doubt, MARGIN), found, MARGIN)


def is_over(groups: Sequence[Group]) -> bool:
    """Whether no further group is needed: it is clear, or all are there, or the last ones could hardly make it so."""
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
