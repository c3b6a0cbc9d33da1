"""What a verification found, and its form as JSON. The page for a person is in page.py."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .judge import Judgement
from .verdict import Verdict

if TYPE_CHECKING:
    from .timing import Timing

# Version 2: "wrong", "left_out", "precision", "parameters_by"; a judgement's errors are null where none could be measured;
# "data" of trials; "draws" and "changes" of the problem. docs/verifying.md describes the fields.
SCHEMA = "mm32.verify/2"


def judgement_record(judgement: Judgement) -> dict[str, Any]:
    measured = judgement.measured
    return {
        "same": judgement.same,
        "reason": judgement.reason,
        "candidate": asdict(judgement.errors) if measured else None,
        "reference": asdict(judgement.reference) if measured else None,
        "bound": asdict(judgement.bounds) if measured else None,
    }


def timing_record(timing: Timing) -> dict[str, Any]:
    def side(name: str) -> dict[str, Any]:
        one = getattr(timing, name)
        return {
            "median_s": one.median,
            "spread": one.spread,
            "wall_s": one.wall,
            "rounds_s": list(one.rounds),
            "walls_s": list(one.walls),
        }

    reference, candidate = side("reference"), side("candidate")
    return {
        "reference": reference,
        "candidate": candidate,
        "speedup": timing.ratio,
        "interval": [timing.low, timing.high],
        "coverage": timing.coverage,
        "wall_speedup": reference["wall_s"] / candidate["wall_s"] if candidate["wall_s"] > 0 else None,
        "rounds": len(timing.reference.rounds),
        "calls_a_round": timing.calls,
    }


@dataclass
class Report:
    """Everything that a verification found. `verdict` and `reason` say what it comes to.

    Texts in it that came from the scripts are safe to show (text.py): one line each, but for the logs `printed`,
    `error["context"]` and `error["traceback"]`, whose lines are separated by line feeds and safe each.
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
    wrong: dict[str, Any] = field(default_factory=dict)  # of the first output that differs: diagnosis.explain
    precision: dict[str, Any] | None = None  # how many bits the candidate's products carry: "bits", "of" 24
    parameters_by: str = "copy"  # or "seed", where the candidate's names or shapes differ
    left_out: list[str] = field(default_factory=list)  # what there was no time for
    inputs_unmodified: bool | None = None
    deterministic: bool | None = None
    timing: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        return self.verdict.exit_code

    def as_dict(self) -> dict[str, Any]:
        """Plain values. NaN and infinities, which JSON cannot write, are the strings "nan", "inf", "-inf"."""
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
