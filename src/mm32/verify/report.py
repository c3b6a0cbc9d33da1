"""What a verification found, and its form as JSON. The page for a person is in page.py."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .judging.judge import Judgement
from .verdict import Verdict

if TYPE_CHECKING:
    from .reward import Reward

# Version 2: "wrong", "left_out", "precision", "parameters_by", "isolation"; a judgement's errors are null where none could be
# measured; "data" of trials; "draws" and "changes" of the problem; "timing" as Timing.record makes it, with a control.
# Version 3: "picture".
# Version 4: "call_s" of each side; times and the speedup are of the faster half of windows, not of medians.
# docs/verifying.md and docs/faster.md describe the fields.
SCHEMA = "mm32.verify/4"


def judgement_record(judgement: Judgement) -> dict[str, Any]:
    measured = judgement.measured
    return {
        "same": judgement.same,
        "reason": judgement.reason,
        "candidate": asdict(judgement.errors) if measured else None,
        "reference": asdict(judgement.reference) if measured else None,
        "bound": asdict(judgement.bounds) if measured else None,
    }


@dataclass
class Report:
    """Everything that a verification found.

    Attributes:
        verdict: same or different, faster or slower, or why nothing is known; see `Verdict`.
        reason: the same in one line of words.
        timing: None, or "speedup", its "interval", the interval's "coverage", and the times of both sides in seconds.
        trials, probes, self_test, timed_outputs: what was compared, each with errors and bounds.
        left_out: what was not tried, as the verdict's line names it.
        notes: what a reader should know besides.
        isolation: how the candidate was confined (docs/defence.md has the words).
        seconds: how long it all took; of these, `building` is what loading and compiling the candidate took, and `stages` has
            each kind of step.
        wrong, picture: where a different output is wrong.

    `as_dict()` and `json()` have all fields as plain values, in the form that docs/verifying.md and docs/faster.md describe.

    Texts in it that came from the scripts are safe to show (text.py). Each is one line, except the logs `printed`,
    `error["context"]` and `error["traceback"]`, whose lines are separated by line feeds, and each line is safe.
    """

    reference: str
    candidate: str
    seed: int
    verdict: Verdict = Verdict.NO_VERDICT
    reason: str = "the run did not finish"
    problem: dict[str, Any] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    self_test: list[dict[str, Any]] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)
    timed_outputs: list[dict[str, Any]] = field(default_factory=list)
    wrong: dict[str, Any] = field(default_factory=dict)  # about the first output that differs: diagnosis.explain
    picture: dict[str, Any] | None = None  # of the first output that differs, else of the first: picture.paint
    # how many bits the candidate's arithmetic carries: "bits", "of" 24; "own": what errors on the script's own data show
    precision: dict[str, Any] | None = None
    parameters_by: str = "copy"  # or "seed", where the candidate's names or shapes differ
    left_out: list[str] = field(default_factory=list)  # what was not tried, for lack of time or of a way to do so
    inputs_unmodified: bool | None = None
    deterministic: bool | None = None
    timing: dict[str, Any] | None = None
    baseline: str = "eager"  # how the reference was run for `timing` and the verdict: timing/stage.py, BASELINES
    baselines: dict[str, Any] = field(default_factory=dict)  # further ones, each `timing` with "verdict", or "failed"
    environment: dict[str, Any] = field(default_factory=dict)
    isolation: list[str] = field(default_factory=list)  # how the candidate was confined; sandbox.py has the words
    notes: list[str] = field(default_factory=list)
    error: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)  # of `seconds`, what each kind of step took
    building: float = 0.0  # of `seconds`, what loading and compiling the candidate took

    @property
    def exit_code(self) -> int:
        return self.verdict.exit_code

    def reward(self, wrong: float = 0.0, same: float = 0.3, speed: float = 1.0, most: float = 10.0) -> Reward:
        """Return a number for reinforcement learning: `wrong` if the candidate is different, does not build, crashes or takes too
        long; `same + speed * factor` if it is the same. The factor is what is proven of its speed: for FASTER the lower end of
        the speedup's interval, at most `most`; for SLOWER and INCONCLUSIVE the upper end, at most 1; for SUSPECT, or untimed, 0.

        The result is a float whose `reason` says what it is for. Raises NoReward if nothing is known about the candidate: the
        reference failed, the check could not have failed, or this tool failed.
        """
        from .reward import reward

        return reward(self, wrong, same, speed, most)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values. NaN and infinities, which JSON cannot write, become the strings "nan", "inf", "-inf"."""
        record = {
            "schema": SCHEMA,
            "verdict": self.verdict.name,
            "exit_code": self.exit_code,
            "same": self.verdict.same,
            **{name: value for name, value in asdict(self).items() if name != "verdict"},
        }
        plain = _plain(record)
        assert isinstance(plain, dict)
        return plain

    def json(self) -> str:
        return json.dumps(self.as_dict(), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
