"""Processes that one verification of a batch leaves to the next: which are kept, and that they begin anew."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm32.verify import Verdict, verify, verify_many
from mm32.verify.batch.spares import OUT_OF_REACH, Spares
from mm32.verify.processes.process import Limits, WorkerProcess, close_all
from mm32.verify.report import Report
from mm32.verify.timing.stage import RECENT, Estimate, TimingStage

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(16, 16)

    def forward(self, x):
        return torch.relu(self.l(x))

def get_inputs():
    return [torch.randn(8, 16)]
"""
# A process can load only one such script.
ONCE = "import sys\nassert not hasattr(sys, 'loaded'), 'a second time'\nsys.loaded = True\n" + REFERENCE


def said(verdict: Verdict, *isolation: str) -> Report:
    report = Report(reference="r", candidate="c", seed=1)
    report.verdict, report.isolation = verdict, list(isolation)
    return report


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "reference.py"
    path.write_text(REFERENCE)
    return path


@pytest.fixture
def workers(script: Path) -> Iterator[list[WorkerProcess]]:
    found = [WorkerProcess("reference", Limits(60.0), script=script)]
    found[0].ask("load", path=str(script), class_name="Model")
    found[0].ask("construct", seed=1)
    yield found
    close_all(found)


def take(spares: Spares, role: str, script: Path) -> WorkerProcess | None:
    return spares.take(role, script, Limits(30.0), lambda waited: None, [])


def test_a_process_that_is_kept_begins_anew(script: Path, workers: list[WorkerProcess]) -> None:
    spares = Spares()
    assert spares.keep(workers, script, said(Verdict.DIFFERENT, *OUT_OF_REACH)) == []
    assert take(spares, "control", script) is None
    worker = take(spares, "reference", script)
    assert worker is workers[0]
    assert worker.limits.timeout == 30
    with pytest.raises(Exception, match="AssertionError"):
        worker.ask("construct", seed=1)  # it no longer has a script
    worker.ask("load", path=str(script), class_name="Model")
    worker.ask("construct", seed=1)
    assert worker.ask("make_inputs", seed=1).value[0].shape == (8, 16)
    assert take(spares, "reference", script) is None


@pytest.mark.parametrize(
    ("verdict", "isolation"),
    [
        (Verdict.DIFFERENT, ["PID namespace", "read-only files"]),
        (Verdict.DIFFERENT, []),
        (Verdict.SUSPECT, OUT_OF_REACH),
        (Verdict.REFERENCE_FAILED, OUT_OF_REACH),
    ],
)
def test_none_is_kept_that_a_candidate_may_have_reached(
    script: Path, workers: list[WorkerProcess], verdict: Verdict, isolation: list[str]
) -> None:
    spares = Spares()
    assert spares.keep(workers, script, said(verdict, *isolation)) == workers
    assert take(spares, "reference", script) is None


def test_one_that_was_meddled_with_or_has_ended_is_not_kept(script: Path, workers: list[WorkerProcess]) -> None:
    spares, report = Spares(), said(Verdict.INCONCLUSIVE, *OUT_OF_REACH)
    workers[0].disturbed.append("was stopped by a signal")
    assert spares.keep(workers, script, report) == workers
    workers[0].disturbed.clear()
    workers[0].end()
    assert spares.keep(workers, script, report) == workers


def test_another_reference_has_none_of_it(script: Path, workers: list[WorkerProcess], tmp_path: Path) -> None:
    spares = Spares()
    spares.keep(workers, script, said(Verdict.SLOWER, *OUT_OF_REACH))
    other = tmp_path / "other.py"
    other.write_text(ONCE)
    assert take(spares, "reference", other) is None
    assert not workers[0].is_sound


def test_a_reference_that_loads_only_once_is_verified_by_fresh_processes(tmp_path: Path) -> None:
    pairs = []
    reference = tmp_path / "once.py"
    reference.write_text(ONCE)
    wrong = REFERENCE.replace("class Model", "class ModelNew").replace("torch.relu", "torch.sin")
    for number in range(2):
        candidate = tmp_path / f"c{number}.py"
        candidate.write_text(f"# {number}\n{wrong}")
        pairs.append((reference, candidate))
    with verify_many(pairs, trials=1, timeout=60) as reports:
        assert [report.verdict for report in reports] == [Verdict.DIFFERENT] * 2


def test_what_is_known_of_the_reference_by_itself_is_not_timed_again(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recall(stage: TimingStage) -> bool:
        stage.alone = 123.0
        return True

    monkeypatch.setattr(TimingStage, "recall_alone", recall)
    monkeypatch.setattr(TimingStage, "time_alone", lambda stage, **_: pytest.fail("timed again"))
    candidate = tmp_path / "candidate.py"
    candidate.write_text(REFERENCE.replace("Model", "ModelNew"))
    report = verify(script, candidate, trials=1)
    assert report.timing is not None, report.reason
    assert report.timing["alone_s"] == 123


@pytest.mark.parametrize(
    ("alone", "since", "known"),
    [(None, 0.0, False), (2.0, 0.0, True), (2.0, RECENT - 5, True), (2.0, RECENT + 5, False)],
)
def test_it_holds_for_no_longer(
    alone: float | None, since: float, known: bool, script: Path, workers: list[WorkerProcess]
) -> None:
    estimate = Estimate(1e-3, 8, False, alone, time.monotonic() - since)
    stage = TimingStage(workers[0], script, 1, "cpu", lambda role: workers[0], lambda step: None, estimate=estimate)
    assert stage.recall_alone() is known
    assert getattr(stage, "alone", None) == (alone if known else None)
