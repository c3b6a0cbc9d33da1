"""What is done from outside to the reference's process and to the scripts is noticed, put right, and reported."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from mm32.verify import Verdict, compare, session
from mm32.verify.inputs.pools import Pools
from mm32.verify.judging.judge import Judgement
from mm32.verify.processes import process
from mm32.verify.processes.channel import Failure
from mm32.verify.processes.guard import Guard
from mm32.verify.processes.process import Limits, WorkerProcess
from mm32.verify.timing.window import Bench
from support.verify.fixtures import REFERENCE, RIGHT, Run

SLOW = """import time
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        time.sleep(0.15)
        return x + 1


def get_inputs():
    return []
"""


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    script = tmp_path / "reference.py"
    script.write_text(REFERENCE)
    worker = WorkerProcess("reference", Limits(60.0), script=script)
    worker.ask("load", path=str(script), class_name="Model")
    yield worker
    worker.close()


def test_nothing_is_told_where_nothing_was_done(reference: WorkerProcess) -> None:
    reference.ask("make_inputs", seed=1)
    assert reference.disturbed == []
    assert Guard([Path(__file__)]).meddled([reference]) == ""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_changed_cores_and_priorities_are_put_back(reference: WorkerProcess) -> None:
    cores, nice = os.sched_getaffinity(reference.pid), os.getpriority(os.PRIO_PROCESS, reference.pid)
    os.sched_setaffinity(reference.pid, {min(cores)})
    os.setpriority(os.PRIO_PROCESS, reference.pid, nice + 5)
    reference.check_undisturbed()
    assert os.sched_getaffinity(reference.pid) == cores
    assert reference.disturbed == ["had its cores and its priority changed from outside"]
    if os.geteuid() == 0:
        assert os.getpriority(os.PRIO_PROCESS, reference.pid) == nice
    said = Guard([]).meddled([reference])
    assert said.startswith("the reference's process had its cores and its priority changed from outside")


def test_it_is_looked_after_when_the_candidate_is_paused(reference: WorkerProcess, tmp_path: Path) -> None:
    candidate = WorkerProcess("candidate", Limits(60.0), script=tmp_path / "reference.py", beside=[reference])
    try:
        nice = os.getpriority(os.PRIO_PROCESS, reference.pid)
        os.setpriority(os.PRIO_PROCESS, reference.pid, nice + 3)
        with candidate.paused() as pause:
            assert pause.still
            assert psutil.Process(candidate.pid).status() == psutil.STATUS_STOPPED
            assert reference.disturbed == ["had its priority changed from outside"]
        # It goes on after the pause.
        candidate.ask("load", path=str(tmp_path / "reference.py"), class_name="Model", kernel=None)
    finally:
        candidate.close()


@pytest.mark.parametrize("role", ["null", "reference"])
def test_no_look_at_a_worker_falls_into_a_window(role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate's processes are counted often, the reference's seldom.

    When they were counted while a window was timed, identical code was called SLOWER, by 4 ms in a window of 25 ms.
    """
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(process, "WATCH_INTERVAL", 0.0)
    monkeypatch.setattr(process, "COUNT_INTERVAL", 0.0)
    looks: list[float] = []

    def members(worker: WorkerProcess) -> list[psutil.Process]:
        looks.append(0.2)
        time.sleep(looks[-1])
        return []

    monkeypatch.setattr(WorkerProcess, "_members", members)
    script = tmp_path / "reference.py"
    script.write_text(SLOW)
    worker = WorkerProcess(role, Limits(60.0), script=script)
    try:
        if role == "reference":
            worker.ask("load", path=str(script), class_name="Model")
            worker.ask("construct", seed=1)
        pools = Pools([[torch.rand(8, 8)] for _ in range(3)], torch.device("cpu"))
        bench = Bench(worker, pools, [("output", torch.empty(8, 8))], 1, torch.device("cpu"))
        bench.window([pools.recipe()])  # touches memory and loads code
        before = len(looks)
        # A window is timed for more than the tenth of a second after which a waiting tool may look.
        windows = [bench.window([pools.recipe()]) for _ in range(3)]
        assert len(looks) - before >= 3  # one before each window at least
        assert max(window.seconds - window.claimed for window in windows) < 0.1
        bench.close()
    finally:
        worker.close()


def test_a_stopped_reference_goes_on(reference: WorkerProcess) -> None:
    os.kill(reference.pid, signal.SIGSTOP)
    give_up = time.monotonic() + 5
    while psutil.Process(reference.pid).status() != psutil.STATUS_STOPPED and time.monotonic() < give_up:
        time.sleep(0.01)
    assert reference.ask("make_inputs", seed=1, timeout=30).value
    assert reference.disturbed == ["was stopped by a signal"]


def test_a_killed_reference_is_told_from_one_that_fails(reference: WorkerProcess) -> None:
    os.kill(reference.pid, signal.SIGKILL)
    with pytest.raises(Failure) as failure:
        reference.ask("make_inputs", seed=1)
    assert (failure.value.kind, failure.value.details) == ("killed", {"signal": "SIGKILL"})
    assert "by the candidate" in Guard([]).killed(failure.value, [])
    assert "a person's" in Guard([]).killed(failure.value, ["PID namespace"])


def test_a_verification_whose_reference_is_killed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = compare.Comparison.trials

    def kill(self: compare.Comparison) -> Judgement:
        os.kill(self.reference.pid, signal.SIGKILL)
        return real(self)

    monkeypatch.setattr(compare.Comparison, "trials", kill)
    report = run(RIGHT, trials=1)
    assert report.verdict is not Verdict.REFERENCE_FAILED
    assert "the reference's process was ended by SIGKILL" in report.reason


def test_a_script_that_is_changed_meanwhile_is_suspect(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = session.Session._time

    def change(self: session.Session, comparison: compare.Comparison) -> None:
        (tmp_path / "candidate.py").write_text("pass\n")
        real(self, comparison)

    monkeypatch.setattr(session.Session, "_time", change)
    report = run(RIGHT, trials=1)
    assert report.verdict is Verdict.SUSPECT
    assert report.reason == f"{tmp_path / 'candidate.py'} was changed meanwhile"
