"""One verification from beginning to end: start both processes, compare, test the comparison itself, time, decide."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .compare import Comparison
from .exchange import handover
from .hints import hint
from .judging.truth import TruthSource
from .machine import card
from .processes.channel import Failure
from .processes.device_lock import DeviceLock
from .processes.folder import is_ours, new_folder
from .processes.guard import Guard
from .processes.launch import NoStart
from .processes.process import Limits, WorkerProcess, close_all
from .report import Report
from .stop import Stop
from .text import in_units, one_line
from .timed_calls import UNTIMABLE, TimedCalls
from .timing import one_call, repeated
from .timing.repeated import Repetition
from .timing.rounds import Timing, is_slowed
from .timing.stage import Estimate, TimingStage
from .verdict import Verdict

WAITING = "waiting for other verifications that use the device"  # the name of a stage
# Seconds that trials, probes and timing may take before they are cut short.
BUDGETS = {"cpu": (14.0, 22.0, 4.0), "cuda": (10.0, 15.0, 5.0)}
# Seconds of one call, and of a trial with its judging, above which fewer timed calls are judged.
LONG_CALL, LONG_TRIAL = 0.2, 3.0
STAGE = re.compile(r"[^\d(:]*")  # the name of a stage without numbers and names in it
# A candidate is not blamed for missing memory if it holds at most HELD bytes of the card plus CALLS_HELD times the inputs and
# outputs of a call.
HELD, CALLS_HELD = 2 << 30, 4
LARGE = 1 << 30  # bytes of an output above which fewer timed calls are judged too: kept outputs would fill the card


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
        self.candidate_ran = False  # whether the candidate's script, or a part of it, has run
        self.building = False  # whether the candidate is being loaded and built
        self.report = Report(
            reference=one_line(reference), candidate=one_line(candidate) if candidate else f"kernel {kernel}", seed=seed
        )
        self.guard = Guard(self.paths.values())
        self.workers: list[WorkerProcess] = []
        self.candidate_place: dict[str, Any] = {}  # "folder" and "extra" of the candidate's processes
        self.caches: Tensor | None = None  # what the candidate's build left, for fresh processes of it
        self.card = card()
        self.lock: DeviceLock | None = None
        self.short = False  # whether memory was short; another verification on the card may have held it
        self.baselines: tuple[str, ...] = ("eager",)  # the first decides the verdict
        self.stages: dict[str, TimingStage] = {}  # by baseline
        self.estimates: dict[str, Estimate] = {}  # likewise; at first from an earlier verification of this reference
        self.disturbed = False  # whether it went on without the lock of the device
        self.unsteady: TimingStage | None = None  # a stage whose calls are not timed, since their outputs vary in shape

    def run(self) -> Report:
        start = self.since = time.monotonic()
        own = "" if "folder" in self.candidate_place else new_folder("candidate")
        if own:
            self.candidate_place["folder"] = Path(own)
        try:
            # The reference may use what it likes: it is trusted, and only guarded against hanging.
            self.reference = self._start("reference", Limits(max(self.limits.timeout, 300.0), float("inf")))
            self.candidate = self._start("candidate", self.limits)
            self.report.isolation = self.candidate.isolation
            self.truth = TruthSource(self.reference, self.note)
            self._verify()
        except Stop as stop:
            self._conclude(stop)
        except Failure as failure:
            self._conclude(self._failed(failure))
        except torch.OutOfMemoryError as error:
            self._conclude(self._no_memory(error))
        finally:
            for stage in [*self.stages.values(), *([self.unsteady] if self.unsteady is not None else [])]:
                stage.close()
            self._end_workers()
            if own:
                shutil.rmtree(own, ignore_errors=True)
            if self.card is not None:
                gc.collect()  # frames of raised exceptions hold tensors, in cycles, and a full card starts no collection
                handover.free(self.card)
            if self.lock is not None:
                self.lock.release()
            self.progress("")
        self._passed()
        # Of the candidate's processes, the first and the last are shown: the others are like these.
        outputs = [worker.output() for worker in self.workers if worker.role == "candidate"]
        self.report.printed = "\n".join(dict.fromkeys(said for said in (outputs[:1] + outputs[-1:]) if said))
        self.report.seconds = time.monotonic() - start
        return self.report

    def _end_workers(self) -> None:
        close_all(self.workers)

    def _conclude(self, stop: Stop) -> None:
        meddled = self.guard.meddled(self.workers)
        if meddled and stop.verdict.same:
            stop = Stop(Verdict.SUSPECT, meddled)
        elif meddled:
            self.note(meddled)
        self.report.verdict, self.report.reason, self.report.error = stop.verdict, stop.reason, stop.error

    def _no_memory(self, error: torch.OutOfMemoryError) -> Stop:
        """Return the verdict if the card has no memory left for judging, which depends on how much the candidate held."""
        assert self.card is not None
        handover.free(self.card)
        before = torch.cuda.mem_get_info(self.card)[0]
        self.candidate.end()
        held = torch.cuda.mem_get_info(self.card)[0] - before
        said = f"no memory of the card is left for {self.stage}"
        self.short = True
        call = max((stage.call_bytes for stage in self.stages.values()), default=0)
        if self.candidate_ran and held > HELD + CALLS_HELD * call:
            return Stop(Verdict.CRASHED, f"{said}, of which the candidate held {held / 2**30:.1f} GiB")
        return Stop(Verdict.REFERENCE_FAILED, f"{said}: {one_line(str(error))}")

    def _failed(self, failure: Failure) -> Stop:
        """Return the verdict if a process did not answer."""
        details = failure.details
        # Whichever process ran out of memory: another verification on the card may have held what was missing.
        said = f"{details.get('type', '')} {failure.message}"
        self.short = self.card is not None and ("OutOfMemoryError" in said or "CUDA out of memory" in said)
        self.short |= self.card is not None and failure.kind == "memory" and bool(details.get("on_card"))
        if failure.kind == "killed" and self.candidate_ran:  # a trusted process, while the candidate's was there
            return Stop(Verdict.CRASHED, f"{self.guard.killed(failure, self.candidate.isolation)}, while {self.stage}")
        if failure.role != "candidate" and details.get("type") == "Unsupported":  # worker/unsupported.py says why
            return Stop(Verdict.NO_VERDICT, f"the reference's {failure.message}")
        message = failure.message
        if said := hint(details.get("type", ""), message, failure.role, self.paths["reference"].stem):
            message, details = f"{message} ({said})", {**details, "hint": said}
        if failure.role != "candidate":
            return Stop(Verdict.REFERENCE_FAILED, f"the reference failed while {self.stage}: {message}", details)
        if failure.kind == "timeout":
            return Stop(Verdict.TIMED_OUT, f"the candidate was ended while {self.stage}: {failure.message}")
        if failure.kind == "raised" and details["type"] != "SystemExit" and (self.building or details["built"]):
            return Stop(Verdict.NOT_BUILT, message, details)
        return Stop(Verdict.CRASHED, f"the candidate failed while {self.stage}: {message}", details)

    def _start(self, role: str, limits: Limits) -> WorkerProcess:
        # The null worker has no script.
        script = self.paths.get({"control": "reference", "baseline": "reference"}.get(role, role))
        worker = WorkerProcess(
            role,
            limits,
            self._say_waiting,
            script,
            self.paths["reference"],
            self.workers,
            device=self.card,
            **(self.candidate_place if role == "candidate" else {}),
        )
        self.workers.append(worker)
        return worker

    def _say_waiting(self, waited: float) -> None:
        self.progress(self._line(waited))

    def _line(self, waited: float) -> str:
        return f"{self.stage} ({waited:.0f} s)" if waited >= 1 else self.stage

    def at(self, stage: str) -> None:
        self._passed()
        self.stage = stage
        self.progress(stage)

    def _passed(self) -> None:
        """Add up the seconds of the stage that ends now. Its numbers are left out: "trial 2 of 5" counts as "trial"."""
        now = time.monotonic()
        name = STAGE.match(self.stage)[0].strip(" ,")  # type: ignore[index]
        self.report.stages[name] = round(self.report.stages.get(name, 0.0) + now - self.since, 3)
        self.since = now

    def note(self, note: str) -> None:
        if note not in self.report.notes:
            self.report.notes.append(note)

    # ------------------------------------------------------------------------------------------------------ stages

    def _verify(self) -> None:
        comparison = Comparison(self)
        comparison.load_reference()
        self._prepare_timing(comparison.build)
        self.candidate_ran = True
        begin = time.monotonic()
        try:
            comparison.load_candidate()
        finally:
            self.report.building = time.monotonic() - begin
        self._lock_device()
        comparison.run(self._start_others)
        self._time(comparison)

    @property
    def device(self) -> str:
        """cpu or cuda."""
        return str(self.report.environment["device"]).split(":")[0]

    def _lock_device(self) -> None:
        self.lock = DeviceLock(str(self.report.environment.get("uuid", self.device)))
        self._wait_for(self.lock.acquire_shared)
        self.trial_budget, self.probe_budget, self.timing_budget = BUDGETS[self.device]

    def _wait_for(self, acquire: Callable[[Callable[[], None]], bool]) -> float:
        """Acquire the device's lock and return the seconds that it took."""
        begin, before = time.monotonic(), self.stage

        def waiting() -> None:
            if self.stage != WAITING:
                self.at(WAITING)
            self.progress(self._line(time.monotonic() - begin))

        if not acquire(waiting):
            self.disturbed = True
            self.note("other verifications used the device for too long to wait for: times may have been disturbed")
        if self.stage == WAITING:
            self.at(before)
        return time.monotonic() - begin

    def let_others(self) -> float:
        """Between two steps of comparing, let another verification that waits to measure go first. Return the seconds waited."""
        if self.lock is None or not self.lock.wanted():
            return 0.0
        return self._wait_for(self.lock.acquire_shared)

    @contextlib.contextmanager
    def _alone(self, repetition: Repetition | None = None) -> Iterator[None]:
        """Hold the device's lock alone, so that no other verification uses the device during a measurement. What comes before and
        after it, building and judging, is done beside others. The waiting does not count as a repetition's time. After an
        exception nothing is waited for."""
        assert self.lock is not None
        waited = self._wait_for(self.lock.acquire_exclusive)
        yield
        waited += self._wait_for(self.lock.acquire_shared)
        if repetition is not None:
            repetition.has_waited(waited)

    # ------------------------------------------------------------------------------------------------------ timing

    @property
    def _shares(self) -> bool:
        """Whether processes, and the time of the reference by itself, are handed on from one verification to the next: another
        baseline's settings would go with them."""
        return self.baselines == ("eager",)

    def _prepare_timing(self, build: dict[str, Any]) -> None:
        """Time the reference before a candidate is loaded (TimingStage). `build`: how the reference was made."""

        def start(role: str) -> WorkerProcess:
            return self._start(role, Limits(max(self.limits.timeout, 300.0), float("inf")))

        self.report.baseline = self.baselines[0]
        self._lock_device()
        assert self.lock is not None
        for baseline in self.baselines:
            stage = TimingStage(
                self.reference,
                self.paths["reference"],
                self.seed,
                self.device,
                start,
                self.at,
                baseline,
                self.estimates.get(baseline),
            )
            try:
                stage.prepare()
                if not stage.steady:
                    self._leave(stage)
                    continue
                if not (self._shares and stage.recall_alone()):
                    # With the lock, the reference's time alone includes nobody else's work. A time without it is not kept.
                    self._wait_for(self.lock.acquire_exclusive)
                    stage.time_alone(keep=not self.disturbed)
                if not stage.steady:
                    self._leave(stage)
                    continue
            except Failure as failure:
                if baseline == self.baselines[0]:
                    raise
                self.report.baselines[baseline] = {"failed": failure.message}
                stage.close()
            else:
                self.stages[baseline] = stage
                assert stage.estimate is not None
                self.estimates[baseline] = stage.estimate
        self.lock.release()  # the candidate may compile for long
        self.reference.ask("build", build, seed=self.seed)  # as it was before these calls

    def _leave(self, stage: TimingStage) -> None:
        """Time no calls of this stage. The data of the first such stage are kept, to be compared."""
        if self.unsteady is None and stage.unfit is not None:
            self.unsteady = stage
        else:
            stage.close()

    def _start_others(self) -> None:
        for stage in self.stages.values():
            stage.start_others()

    def _time(self, comparison: Comparison) -> None:
        assert self.lock is not None
        self.timed = TimedCalls(self, comparison, self.truth)
        if not self.stages and self.unsteady is not None and self.unsteady.unfit is not None:
            self.unsteady.workers["candidate"] = self.candidate
            raise self.timed.of_misfit(self.unsteady.unfit, self.unsteady)
        if not self.stages:
            raise Stop(Verdict.INCONCLUSIVE, UNTIMABLE)
        seconds = comparison.reference_seconds
        few = seconds > LONG_CALL or comparison.trial_seconds > LONG_TRIAL or comparison.output_bytes > LARGE
        timeout = comparison.limits(seconds * 50)["timeout"]
        comparison.forget()
        first, *others = self.stages
        said_already = {*comparison.seen.steady, *comparison.seen.numbers}
        for i in self.stages[first].pools.always_same():
            if i not in said_already:
                self.report.left_out.append(f"times with input {i} other than the same in every call")
        for i in self.stages[first].pools.always_same(mixed=True):
            self.report.left_out.append(f"times with input {i} other than parts of one tensor, in another order")
        if self.stages[first].state and not self.stages[first].pools.state:
            self.report.left_out.append("times from other states of the buffers that calls change, which are large")
        measured = self._measure(first, few, timeout, comparison)
        self.report.timing = measured.record()
        for name in others:
            try:
                other = self._measure(name, few, timeout, comparison)
                other = self._by_one_call(self.stages[name], other)
            except Failure as failure:
                if failure.role == "candidate":
                    raise
                self.report.baselines[name] = {"failed": failure.message}
            else:
                said = {"verdict": other.verdict.name, "note": other.note}
                self.report.baselines[name] = {**said, **other.record()}
            self.stages[name].close()
        measured = self._repeat(self.stages[first], measured, comparison)
        measured = self._by_one_call(self.stages[first], measured)
        if measured.verdict is Verdict.SUSPECT and is_slowed(measured.fastest, measured.alone, self.device):
            measured = self._without_the_candidate(self.stages[first], measured)
        self.report.timing = measured.record()
        if measured.verdict is Verdict.FASTER and not measured.certain > 1:
            self.note(
                f"of a call's time, the tool's copy of the output is {in_units(measured.null - measured.exchange)}: a candidate "
                "that replaced this in its own process could have gained as much"
            )
        raise Stop(measured.verdict, measured.note)

    def _without_the_candidate(self, stage: TimingStage, measured: Timing) -> Timing:
        """Time a reference that was slower beside the candidate once more, after the candidate has ended. If it still takes as
        long, the machine has become slower, and nobody is suspected."""
        if not measured.quiet:
            return measured
        self.candidate.end()
        with self._alone():
            self.at("timing the reference alone again")
            now = stage.alone_again()
        if is_slowed(measured.fastest, now, self.device):
            return measured
        note = (
            f"the machine has become slower: the reference took {in_units(measured.alone)} a call before the candidate was "
            f"loaded, at least {in_units(measured.fastest)} beside it, and {in_units(now)} after it had ended. The rounds say "
            f"{measured.ratio:.2f}x, {measured.low:.2f} to {measured.high:.2f}; verify it again"
        )
        return dataclasses.replace(measured, verdict=Verdict.INCONCLUSIVE, note=note)

    def _measure(self, baseline: str, few: bool, timeout: float, comparison: Comparison) -> Timing:
        """Time the candidate against a baseline, and judge its outputs."""
        stage = self.stages[baseline]
        further = baseline == self.report.baseline and self.report.building <= repeated.BUILT_SOON
        # A candidate with other buffers has no place for the reference's.
        stage.pools.vary_state = comparison.copied and set(stage.pools.state) <= comparison.given
        with self.timed.misfits(stage), self._alone():
            self.at("timing")
            measured = stage.measure(
                self.candidate,
                self.timing_budget,
                1 if few else 3,
                timeout,
                {o.name: o.inputs for o in comparison.passed_for_windows(few)},
                further,
            )
        self.timed.judge_all(stage, measured.kept)
        return measured

    def _by_one_call(self, stage: TimingStage, measured: Timing) -> Timing:
        """Hold a FASTER verdict to windows of one call, whose outputs are judged as well."""
        if measured.verdict is not Verdict.FASTER or measured.calls == 1:
            return measured
        with self.timed.misfits(stage), self._alone():
            self.at("timing calls by themselves")
            measured, kept = stage.one_call(measured)
        self.timed.judge_all(stage, kept)
        found = measured.one_call
        if found is not None and found.says == one_call.UNCLEAR:
            self.note(
                f"windows of one call could not tell whether a call by itself gains as much: {found.ratio:.2f}x there, "
                f"{found.low:.2f} to {found.high:.2f}; it saves {in_units(found.saved.ratio)}, and {in_units(found.wanted)} "
                "would bear the claim out"
            )
        return measured

    def _repeat(self, stage: TimingStage, measured: Timing, comparison: Comparison) -> Timing:
        """If the difference is small, time fresh processes of both sides as well. All their outputs are judged as before."""
        if not stage.renewable:
            return measured
        assert self.lock is not None
        repetition = Repetition(measured, self.device)

        def load(worker: WorkerProcess) -> None:
            if self.caches is not None:
                worker.ask("unpack_caches", self.caches, timeout=repeated.WITHIN)
            comparison.reload_candidate(worker, repeated.WITHIN)

        while count := repetition.rounds():
            number = len(repetition.samples)
            self.at(f"starting fresh processes, {number}")
            loaded = False
            try:
                if number == 1:
                    self.caches = self.candidate.packed_caches(repeated.CACHES, repeated.WITHIN)
                stage.renew(self._fresh_candidate, load)
                loaded = True
                with self.timed.misfits(stage), self._alone(repetition):
                    self.at(f"timing fresh processes, {number}")
                    kept = stage.again(repetition, count)
            except (Failure, NoStart, OSError) as error:
                kind = error.kind if isinstance(error, Failure) else ""
                # Windows may lack memory of the card that other processes hold. Any other failure in them counts.
                missing = kind == "memory" and bool(error.details.get("on_card"))  # type: ignore[union-attr]
                if kind == "killed" or (loaded and not missing):
                    raise
                self.note(
                    "the difference is small, and no more processes of both sides could be timed to tell it: "
                    f"{one_line(getattr(error, 'message', error))}"
                )
                break
            repetition.has_waited(self.timed.judge_all(stage, kept))
            repetition.is_judged()
        return repetition.conclude()

    def _fresh_candidate(self) -> WorkerProcess:
        """Start another process of the candidate's, in place of one that has ended. Raises NoStart and OSError."""
        if not is_ours(self.candidate_place["folder"]):  # what somebody else put there must decide nothing
            raise OSError("the folder of the candidate's process is no longer there")
        self.candidate = self._start("candidate", self.limits)
        self.report.isolation = [word for word in self.report.isolation if word in self.candidate.isolation]
        return self.candidate
