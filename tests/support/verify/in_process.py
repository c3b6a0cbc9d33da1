"""The comparison of two scripts in this process: the judge's verdict on a candidate in a second.

Only for scripts of this project: a candidate that runs here could do anything.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mm32.verify.compare import Comparison
from mm32.verify.exchange import named, wire
from mm32.verify.judging.truth import TruthSource
from mm32.verify.processes.channel import Failure, Reply, checked_error, safe
from mm32.verify.processes.process import Limits
from mm32.verify.reference import ReferenceRunner
from mm32.verify.report import Report
from mm32.verify.stop import Stop
from mm32.verify.worker.main import describe_error
from mm32.verify.worker.runner import ScriptRunner

CORPUS = Path(__file__).parents[2] / "verify" / "corpus"


def _handed_over(value: Any, classes: named.Classes) -> Any:
    """Return a value as it arrives in another process, its named tuples in the classes that `classes` returns."""
    tensors: list[Tensor] = []
    node = wire.pack(value, tensors)
    return wire.unpack(node, [t.detach().clone(memory_format=torch.preserve_format) for t in tensors], classes)


def generators() -> tuple[Any, ...]:
    """Return the states of the host's random generators that a model may draw from."""
    return torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002


def set_generators(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])  # noqa: NPY002


class Worker:
    """A runner behind the interface of a worker process."""

    def __init__(self, runner: ScriptRunner, role: str):
        self.runner, self.role = runner, role
        self.generators = generators()

    def ask(self, op: str, value: Any = None, **fields: Any) -> Reply:
        """Answer a request. As in a process of its own, the runner's generators go on from where its last request left them."""
        begin = time.monotonic()
        set_generators(self.generators)
        try:
            with torch.no_grad():
                answer = dict(
                    self.runner.operations()[op]({**fields, "value": _handed_over(value, self.runner.named_tuple)})
                )
                made = _handed_over(answer.pop("value", None), named.plain_class)
        except Exception as error:
            details = checked_error(describe_error(error, self.runner, op))
            raise Failure("raised", f"{type(error).__name__}: {error}", details, self.role) from error
        finally:
            self.generators = generators()
        assert not {"error", "nonce"} & set(answer), "names that the messages have for themselves"
        return Reply(safe(answer), made, time.monotonic() - begin)


class Bench:
    """The part of a session that a comparison needs."""

    def __init__(self, reference: Path, candidate: Path, trials: int | None, seed: int):
        self.paths = {"reference": reference, "candidate": candidate}
        self.kernel, self.asked_trials, self.seed = None, trials, seed
        self.report = Report(str(reference), str(candidate), seed)
        self.reference, self.candidate = Worker(ReferenceRunner(), "reference"), Worker(ScriptRunner(), "candidate")
        self.truth = TruthSource(self.reference, self.note)  # type: ignore[arg-type]
        self.building, self.device, self.card = False, self.reference.runner.device.type, None
        self.short = False
        self.trial_budget = self.probe_budget = 300.0
        self.limits = Limits(300.0, 16.0)

    def at(self, stage: str) -> None:
        pass

    def let_others(self) -> float:
        return 0.0

    def note(self, note: str) -> None:
        self.report.notes.append(note)


def compare(reference: Path, candidate: Path, trials: int | None = None, seed: int = 1) -> tuple[str, str, Report]:
    """Return SAME or the name of another verdict, the reason, and the report. Raises Failure where a script raises."""
    bench = Bench(reference, candidate, trials, seed)
    comparison = Comparison(bench)  # type: ignore[arg-type]
    try:
        comparison.load_reference()
        comparison.load_candidate()
        comparison.run()
    except Stop as stop:
        return stop.verdict.name, stop.reason, bench.report
    return "SAME", "", bench.report
