"""One verification in a batch: a session that takes over what was built ahead, and has a batch's time limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..entry import check_options
from ..processes.channel import Failure
from ..processes.process import Limits, WorkerProcess, close_all
from ..report import Report
from ..session import Session
from ..verdict import Verdict
from .ahead import Built
from .jobs import Job
from .spares import Spares
from .truths import Truths

FIRST_CALL = 120.0  # the most seconds of a model's first call, which may compile
TRANSIENT = ("timeout", "crashed", "killed", "channel", "memory")


@dataclass
class BatchLimits(Limits):
    """The limits in a batch: a candidate that hangs must not hold a card for minutes."""

    def running(self, reference_seconds: float) -> float:
        return max(5.0, 100 * reference_seconds)

    @property
    def first_call(self) -> float | None:
        return min(self.timeout, FIRST_CALL)


def limits(job: Job) -> BatchLimits:
    options = job.options
    memory = check_options(
        options["trials"], options["seed"], options["timeout"], options["memory_gib"], options["baselines"]
    )
    return BatchLimits(options["timeout"], memory)


class BatchSession(Session):
    """A verification in a batch.

    `suspicious`: whether, after a run, the reference failed in a way that the card or this process may have caused.
    """

    def __init__(
        self, job: Job, built: Built, arch: str, truths: Truths, spares: Spares, progress: Callable[[str], None]
    ):
        trials = job.options["trials"]
        super().__init__(Path(job.reference), Path(job.candidate), None, trials, job.seed, limits(job), progress)
        self.baselines = tuple(job.options["baselines"])
        self.built = built
        self.truths, self.spares = truths, spares
        self.taken: set[str] = set()  # roles whose process is a spare, left by another verification
        self.started: set[str] = set()  # roles that have had a process
        self.suspicious = False
        extra = {"TORCH_CUDA_ARCH_LIST": arch} if arch else {}
        self.candidate_place = {"folder": Path(built.folder), "extra": extra}

    def run(self) -> Report:
        report = super().run()
        if self.built.failure is not None and not report.printed:
            report.printed = self.built.printed
        return report

    def _start(self, role: str, limits: Limits) -> WorkerProcess:
        worker = None
        if role not in self.started and self._shares:  # a role's first process may be a spare, later ones are fresh
            worker = self.spares.take(role, self.paths["reference"], limits, self._say_waiting, self.workers)
        self.started.add(role)
        if worker is None:
            worker = super()._start(role, limits)
        else:
            self.taken.add(role)
            self.workers.append(worker)
        if role == "reference":
            self.truths.watch(worker, str(self.paths["reference"]))
        return worker

    def _end_workers(self) -> None:
        left = self.workers
        if self._shares:
            left = self.spares.keep(self.workers, self.paths["reference"], self.report)
        close_all(left)

    def _prepare_timing(self, build: dict[str, Any]) -> None:
        if self.built.failure is not None:  # the reference is known to load; the candidate is known not to
            self.candidate_ran = self.building = True
            self.at("loading and compiling the candidate")
            raise Failure(**self.built.failure, role="candidate")
        self.estimates = self.spares.estimates_of(self.paths["reference"])
        super()._prepare_timing(build)
        if self.built.caches:
            packed = torch.frombuffer(bytearray(Path(self.built.caches).read_bytes()), dtype=torch.uint8)
            self.candidate.ask("unpack_caches", packed)

    def _failed(self, failure: Failure) -> Any:
        stop = super()._failed(failure)
        broken = failure.kind in TRANSIENT or "CUDA error" in failure.message
        self.suspicious = stop.verdict is Verdict.REFERENCE_FAILED and broken
        return stop


def verify_job(
    job: Job, built: Built, arch: str, truths: Truths, spares: Spares, progress: Callable[[str], None]
) -> tuple[Report, bool, bool]:
    """Return a job's report, whether another card should be asked as well, and whether memory of the card was missing."""
    begin = time.monotonic()
    session = BatchSession(job, built, arch, truths, spares, progress)
    report = session.run()
    # The spares may be the cause: for example, some scripts cannot be loaded twice into one process.
    if session.taken and not report.verdict.of_candidate:
        spares.close()
        session = BatchSession(job, built, arch, truths, spares, progress)
        report = session.run()
    report.seconds = time.monotonic() - begin + built.seconds
    report.building += built.seconds
    return report, session.suspicious, session.short
