"""When to stop timing, and what to conclude then: a sequential rule on windows' times. Pure functions of numbers.

In each round every process is timed once: the reference, the control (a second process of the reference), and the candidate.
After certain numbers of rounds the rule looks at the interval of the ratio of the reference to the candidate (faster_half.py).
The interval must lie beyond a margin, and beyond the difference between reference and control, which is nothing but noise; and
all windows must bear it out. The earlier the look, the larger the margin, so that only clear results end early. The rule assumes
that windows are independent. tests/verify/timing/test_sequential.py simulates identical code (at most 1 % may be called FASTER or
SLOWER) and code that is 5 % faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import faster_half
from .faster_half import Interval

# The numbers of rounds after which there is a look, and the margin then.
LOOKS: dict[int, float] = {
    5: 2.0,
    8: 1.2,
    **dict.fromkeys((12, 16, 20, 25, 30, 40, 60, 90, 120), 1.0),
}
USUAL = 40  # rounds; more only where they promise a result: where the interval's ends are within a factor of NARROW
NARROW = 1.2
WELL_KNOWN = 16  # rounds from which on the noise is known well
MIN_ROUNDS = min(LOOKS)
MAX_ROUNDS = max(LOOKS)
# Two processes that run the same code may differ by more than their own rounds do, since memory and threads are placed elsewhere:
# on a CPU by a few percent, once by 4 % on a quiet machine of two cores. No margin is smaller than these.
MARGIN = {"cpu": 1.1, "cuda": 1.02}
# The ratio by all windows has to be beyond the margin as well, by this many standard errors: a process whose windows vary more
# than another one's has a faster half that is faster. The number is small, since other programs make some windows late.
BORNE_OUT = 2.0


@dataclass(frozen=True)
class Outcome:
    """What a look says. `says`: "faster", "slower" or "unclear"; `interval`: the ratio's; `margin`: what that had to clear."""

    says: str
    interval: Interval
    margin: float

    @property
    def unborne(self) -> bool:
        """Whether the interval is clear of the margin, but all windows together do not bear it out."""
        clear = self.interval.low > self.margin or self.interval.high < 1 / self.margin
        return clear and self.says == "unclear"

    def why_unclear(self, of: str = "") -> str:
        """Return in words why it is unclear. `of`: what the interval is of, between commas."""
        found = self.interval
        ends = f"{found.low:.2f} to {found.high:.2f}{of}"
        if self.unborne:
            said = f"the faster half of windows says {found.ratio:.2f}x, {ends}{'' if of else ','}"
            return f"{said} but all of them, which vary, do not bear it out"
        within = "contains 1" if found.low <= 1 <= found.high else f"comes within {self.margin - 1:.0%} of 1"
        return f"the interval {ends} {within}"


def conclusion(found: Interval, margin: float, whole: float, doubt: float, least: float) -> str:
    """Return what Outcome.says: whether the interval is beyond `margin`, and the ratio by all windows beyond `least`.

    `whole`: the logarithm of that ratio, which may be off by `doubt`."""
    if found.low > margin and whole - doubt > math.log(least):
        return "faster"
    if found.high < 1 / margin and whole + doubt < -math.log(least):
        return "slower"
    return "unclear"


def look(reference: Sequence[float], control: Sequence[float], candidate: Sequence[float], device: str) -> Outcome:
    """Return what the last look reached says of these positive times, given round by round.

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
    """Return what two processes of the reference differ by, as a ratio above 1.

    At early looks it is the far end of the interval. Later, where the ratio is known well, it is twice its distance from 1."""
    if reached < WELL_KNOWN:
        return max(control.high, 1 / control.low)
    return max(control.ratio, 1 / control.ratio) ** 2


def promising(reference: Sequence[float], control: Sequence[float], candidate: Sequence[float], device: str) -> bool:
    """Return whether the interval is narrow and excludes 1 but is unclear: more rounds may tell a small difference."""
    outcome = look(reference, control, candidate, device)
    low, high = outcome.interval.low, outcome.interval.high
    return outcome.says == "unclear" and not low <= 1 <= high and high <= NARROW * low


def decided(reference: Sequence[float], control: Sequence[float], candidate: Sequence[float], device: str) -> bool:
    """Return whether no more rounds are needed, which only a look can decide.

    That is so if the outcome is clear, or clearly within the margin, or not promising after the USUAL rounds."""
    rounds = len(candidate)
    if rounds not in LOOKS:
        return False
    outcome = look(reference, control, candidate, device)
    if rounds >= USUAL and not promising(reference, control, candidate, device):
        return True
    smallest = MARGIN[device]
    within = 1 / smallest < outcome.interval.low and outcome.interval.high < smallest
    return outcome.says != "unclear" or (within and LOOKS[rounds] <= 1)
