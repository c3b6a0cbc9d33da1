"""One verification from beginning to end: start both processes, compare, test the comparison itself, time, decide."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from . import timing
from .channel import Failure
from .compare import Comparison
from .device_lock import DeviceLock
from .judge import judge
from .process import Limits, WorkerProcess, close_all
from .report import Report, judgement_record, timing_record
from .stop import Stop
from .text import one_line
from .truth import TruthSource
from .verdict import Verdict

# Seconds that trials, probes and timing may take before they are cut short, which hardly ever happens on a GPU.
BUDGETS = {"cpu": (14.0, 22.0, 8.0), "cuda": (60.0, 120.0, 15.0)}
SLOW = 0.2  # seconds of one call, above which fewer are made


class Session:
    """The state of one verification. `run` does all of it."""

    def __init__(
        self,
        reference: Path,
        candidate: Path | None,
        kernel: str | None,
        trials: int | None,
        seed: int,
        limits: Limits,
        progress: Callable[[str], None],
    ):
        self.paths = {"reference": reference, "candidate": candidate or reference}
        self.kernel = kernel
        self.asked_trials = trials
        self.seed = seed
        self.limits = limits
        self.progress = progress
        self.stage = "starting"
        self.building = False  # the candidate is being loaded and built
        self.report = Report(
            reference=one_line(reference), candidate=one_line(candidate) if candidate else f"kernel {kernel}", seed=seed
        )
        self.workers: list[WorkerProcess] = []
        self.lock: DeviceLock | None = None

    def run(self) -> Report:
        start = time.monotonic()
        try:
            # The reference may use what it likes: it is trusted, and only guarded against hanging.
            self.reference = self._start("reference", Limits(max(self.limits.timeout, 300.0), float("inf")))
            self.candidate = self._start("candidate", self.limits)
            self.truth = TruthSource(self.reference, self.note)
            self._verify()
        except Stop as stop:
            self._conclude(stop)
        except Failure as failure:
            self._conclude(self._failed(failure))
        finally:
            close_all(self.workers)
            if self.lock is not None:
                self.lock.release()
            self.progress("")
        self.report.printed = self.candidate.output()
        self.report.seconds = time.monotonic() - start
        return self.report

    def _conclude(self, stop: Stop) -> None:
        self.report.verdict, self.report.reason, self.report.error = stop.verdict, stop.reason, stop.error

    def _failed(self, failure: Failure) -> Stop:
        """The verdict where a process did not answer."""
        details = failure.details
        if failure.role == "reference":
            return Stop(
                Verdict.REFERENCE_FAILED, f"the reference failed while {self.stage}: {failure.message}", details
            )
        if failure.kind == "timeout":
            return Stop(Verdict.TIMED_OUT, f"the candidate was ended while {self.stage}: {failure.message}")
        if failure.kind == "raised" and details["type"] != "SystemExit" and (self.building or details["built"]):
            return Stop(Verdict.NOT_BUILT, failure.message, details)
        return Stop(Verdict.CRASHED, f"the candidate failed while {self.stage}: {failure.message}", details)

    def _start(self, role: str, limits: Limits) -> WorkerProcess:
        worker = WorkerProcess(role, limits, lambda waited: self.progress(self._line(waited)))
        self.workers.append(worker)
        return worker

    def _line(self, waited: float) -> str:
        return f"{self.stage} ({waited:.0f} s)" if waited >= 1 else self.stage

    def at(self, stage: str) -> None:
        self.stage = stage
        self.progress(stage)

    def note(self, note: str) -> None:
        if note not in self.report.notes:
            self.report.notes.append(note)

    # ------------------------------------------------------------------------------------------------------ stages

    def _verify(self) -> None:
        comparison = Comparison(self)
        comparison.load()
        self._lock_device()
        comparison.run()
        self._time(comparison)

    @property
    def device(self) -> str:
        """cpu or cuda."""
        return str(self.report.environment["device"]).split(":")[0]

    def _lock_device(self) -> None:
        self.lock = DeviceLock(str(self.report.environment.get("uuid", self.device)))
        self._wait_for(self.lock.acquire_shared)
        self.trial_budget, self.probe_budget, self.timing_budget = BUDGETS[self.device]

    def _wait_for(self, acquire: Callable[[Callable[[], None]], bool]) -> None:
        begin = time.monotonic()

        def waiting() -> None:
            self.stage = "waiting for other verifications that use the device"
            self.progress(self._line(time.monotonic() - begin))

        if not acquire(waiting):
            self.note("other verifications used the device for too long to wait for: times may have been disturbed")

    # ------------------------------------------------------------------------------------------------------ timing

    def _time(self, comparison: Comparison) -> None:
        assert self.lock is not None
        self._wait_for(self.lock.acquire_exclusive)
        self.at("timing")
        made = self.reference.ask("make_inputs", seed=self.seed + 500)
        self.candidate.ask("set_inputs", made.value, names=made.header.get("names"))
        del made
        cost = self._cost()
        slow = cost > SLOW
        measured = timing.measure(
            self.reference,
            self.candidate,
            cost,
            self.timing_budget,
            keep=1 if slow else 3,
            progress=self.at,
            **comparison.limits(comparison.reference_seconds * 50),
        )
        self.report.timing = timing_record(measured)
        if slow and len(measured.reference.rounds) < timing.MAX_ROUNDS:
            self.note(f"{len(measured.reference.rounds)} timing rounds instead of {timing.MAX_ROUNDS}")
        self._judge_timed(measured)
        raise Stop(measured.verdict, measured.note)

    def _cost(self) -> float:
        """Seconds of a warm call of the slower side, by this process's clock."""
        costs = []
        for worker in (self.reference, self.candidate):
            best = math.inf
            for calls in (1, 3, 3):
                plan = [None] * calls
                best = min(best, worker.ask("time", calls=plan, flush=False, keep=None, seed=0, two=True).wall / calls)
                if best > SLOW:
                    break
            costs.append(best)
        return max(costs)

    def _judge_timed(self, measured: timing.Timing) -> None:
        """Judge outputs of timed calls like all others: a call that was timed must also be right."""
        for kept in measured.kept:
            self.at("judging timed calls' outputs")
            self.reference.ask("refill", shift=kept.shift)
            truths = self.truth.of(0, kept.reference)
            if self.report.problem["draws"] or self.report.problem["changes"]:
                # What a timed call draws, and the state that it finds, depend on the calls before it.
                truths = [truth.unsliced() for truth in truths]
            result = judge(kept.candidate, truths)
            self.report.timed_outputs.append({"burst": kept.burst, **judgement_record(result)})
            if not result.same:
                raise Stop(
                    Verdict.DIFFERENT, f"the output of a timed call, on fresh data in the same storage: {result.reason}"
                )
