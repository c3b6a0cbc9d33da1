"""When to stop timing, and what to say then: a sequential rule on windows' times. Pure functions of numbers.

In each round every process is timed once: the reference, the control, a second process of the reference, and the candidate.
After certain numbers of rounds the rule looks at the interval of the ratio of the reference to the candidate (faster_half.py): it
must lie beyond a margin, and beyond what the control differs by, which is nothing but noise, and all windows must bear it out.
The earlier the look, the larger the margin, so that only what is clear ends early. Of the noise it is assumed that windows are
independent. tests/verify/timing/test_sequential.py simulates identical code (at most 1 % may be called FASTER or SLOWER) and code
that is 5 % faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import faster_half
from .faster_half import Interval

# Rounds at a look, and the margin then.
LOOKS: dict[int, float] = {
    5: 2.0,
    8: 1.2,
    **dict.fromkeys((12, 16, 20, 25, 30, 40, 60, 90, 120), 1.0),
}
USUAL = 40  # rounds; more only where they promise to tell something: where the interval's ends are within NARROW
NARROW = 1.2
WELL_KNOWN = 16  # rounds
MIN_ROUNDS = min(LOOKS)
MAX_ROUNDS = max(LOOKS)
# Two processes that run the same code may differ by more than their own rounds do (where memory and threads are placed), on a
# CPU by a few percent: by 4 % once, on a quiet machine of two cores. No margin is smaller than these.
MARGIN = {"cpu": 1.1, "cuda": 1.02}
# Standard errors that the ratio by all windows has to be beyond the margin as well: a process whose windows vary more than
# another one's has a faster half that is faster. Not many, for some windows are late by what others do.
BORNE_OUT = 2.0


@dataclass(frozen=True)
class Outcome:
    """What a look says: "faster", "slower" or "unclear"; the ratios' interval; the margin that it was held to."""

    says: str
    interval: Interval
    margin: float

    @property
    def unborne(self) -> bool:
        """Whether the interval is clear, and all windows do not bear it out."""
        clear = self.interval.low > self.margin or self.interval.high < 1 / self.margin
        return clear and self.says == "unclear"

    def why_unclear(self, of: str = "") -> str:
        """In words. `of`: what the interval is of, between commas."""
        found = self.interval
        ends = f"{found.low:.2f} to {found.high:.2f}{of}"
        if self.unborne:
            said = f"the faster half of windows says {found.ratio:.2f}x, {ends}{'' if of else ','}"
            return f"{said} but all of them, which vary, do not bear it out"
        within = "contains 1" if found.low <= 1 <= found.high else f"comes within {self.margin - 1:.0%} of 1"
        return f"the interval {ends} {within}"


def conclusion(found: Interval, margin: float, whole: float, doubt: float, least: float) -> str:
    """What Outcome.says: whether the interval is beyond `margin`, and the ratio by all windows, a logarithm that may be off by
    `doubt`, beyond `least`."""
    if found.low > margin and whole - doubt > math.log(least):
        return "faster"
    if found.high < 1 / margin and whole + doubt < -math.log(least):
        return "slower"
    return "unclear"


def look(reference: Sequence[float], control: Sequence[float], candidate: Sequence[float], device: str) -> Outcome:
    """What can be said of these positive times, round by round, at the last look reached.

    Fewer than MIN_ROUNDS rounds are never clear.
    """
    found = faster_half.ratio(reference, candidate)
    reached = max((n for n in LOOKS if n <= len(candidate)), default=0)
    if not reached:
        return Outcome("unclear", found, math.inf)
    margin = max(LOOKS[reached], MARGIN[device], _noise(faster_half.ratio(reference, control), reached))
    whole = faster_half.middle(reference, candidate)
    doubt = BORNE_OUT * faster_half.middle_error(reference, candidate)
    return Outcome(conclusion(found, margin, whole, doubt, MARGIN[device]), found, margin)


def _noise(control: Interval, reached: int) -> float:
    """What two processes of the reference differ by, as a ratio above 1: at early looks the far end of the interval; later, where
    it is known well, twice its distance from 1."""
    if reached < WELL_KNOWN:
        return max(control.high, 1 / control.low)
    return max(control.ratio, 1 / control.ratio) ** 2


def promising(reference: Sequence[float], control: Sequence[float], candidate: Sequence[float], device: str) -> bool:
    """Whether the interval is narrow and leaves out 1 but is not clear of the margin: more rounds may tell a small difference."""
    outcome = look(reference, control, candidate, device)
    low, high = outcome.interval.low, outcome.interval.high
    return outcome.says == "unclear" and not low <= 1 <= high and high <= NARROW * low


def decided(reference: Sequence[float], control: Sequence[float], candidate: Sequence[float], device: str) -> bool:
    """Whether no more rounds are needed: at a look, and clear, or clearly within the margin; or after the USUAL ones not
    promising."""
    rounds = len(candidate)
    if rounds not in LOOKS:
        return False
    outcome = look(reference, control, candidate, device)
    if rounds >= USUAL and not promising(reference, control, candidate, device):
        return True
    smallest = MARGIN[device]
    within = 1 / smallest < outcome.interval.low and outcome.interval.high < smallest
    return outcome.says != "unclear" or (within and LOOKS[rounds] <= 1)
