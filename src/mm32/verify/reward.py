"""A number for reinforcement learning, with its reason. A verdict that says nothing of the candidate gets none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .verdict import Verdict

if TYPE_CHECKING:
    from .report import Report


class NoReward(RuntimeError):
    """The reference, the check or the tool failed: nothing is known of the candidate. `report` has the verdict."""

    def __init__(self, report: Report):
        super().__init__(f"{report.verdict.value}: {report.reason}")
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:  # else it could not come back from a pool's process
        return NoReward, (self.report,)


class Reward(float):
    """A float; `reason` says what it was given for."""

    reason: str

    def __new__(cls, value: float, reason: str) -> Reward:
        made = super().__new__(cls, value)
        made.reason = reason
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Reward, (float(self), self.reason)


def reward(report: Report, wrong: float = 0.0, same: float = 0.3, speed: float = 1.0, most: float = 10.0) -> Reward:
    """See Report.reward."""
    if not report.verdict.of_candidate:
        raise NoReward(report)
    if not report.verdict.same:
        return Reward(wrong, f"{report.verdict.value}: {report.reason}")
    if report.timing is None or report.verdict is Verdict.SUSPECT:
        return Reward(same, f"{report.verdict.value}: nothing for its speed")
    low, high = (float(end) for end in report.timing["interval"])
    if report.verdict is Verdict.FASTER:
        factor, said = low, "the lower end of the interval"
    else:
        factor, said = min(1.0, high), "the upper end of the interval, at most 1"
    factor = min(max(factor, 0.0), most)
    return Reward(same + speed * factor, f"{report.verdict.value}: {same:g} + {speed:g} * {factor:.3g}, {said}")
