"""One verification from beginning to end: start both processes, compare, test the comparison itself, time, decide."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import selftest, timed
from .channel import Failure
from .device_lock import DeviceLock
from .guard import Guard
from .judge import Judgement, Truth, judge, same_bits, shape_of
from .probes import PROBES, Probe, skip_reason
from .process import Limits, WorkerProcess, close_all
from .report import Report, judgement_record
from .text import one_line
from .timing import Odd, Timing, in_units
from .truth import TruthSource
from .verdict import Verdict
from .wire import leaves

DEFAULT_TRIALS = 3
# Seconds that trials, probes and timing may take before they are cut short, which hardly ever happens on a GPU.
BUDGETS = {"cpu": (14.0, 22.0, 4.0), "cuda": (60.0, 120.0, 15.0)}
SLOW = 0.2  # seconds of one call, above which fewer are made


class Stop(Exception):
    """The verdict is known."""

    def __init__(self, verdict: Verdict, reason: str, error: dict[str, Any] | None = None):
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason
        self.error = error or {}


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
        self.guard = Guard(self.paths.values())
        self.workers: list[WorkerProcess] = []
        self.lock: DeviceLock | None = None
        self.timing: timed.TimingStage
        self.build: dict[str, Any] = {}  # the reference's constructor arguments and parameters
        self.right: Any = None  # the reference's output of the last trial, and its truth
        self.truths: list[Truth] = []
        self.stale: Any = None  # the reference's output for other inputs
        self.made: list[tuple[str, Any, list[Truth]]] = []  # outputs computed wrongly on purpose
        self.reference_seconds = 0.0
        self.trial_seconds = 0.0

    def run(self) -> Report:
        start = time.monotonic()
        try:
            # The reference may use what it likes: it is trusted, and only guarded against hanging.
            self.reference = self._start("reference", Limits(max(self.limits.timeout, 300.0), float("inf")))
            self.candidate = self._start("candidate", self.limits)
            self.report.isolation = self.candidate.isolation
            self.truth = TruthSource(self.reference, self._note)
            self._verify()
        except Stop as stop:
            self._conclude(stop)
        except Failure as failure:
            self._conclude(self._failed(failure))
        finally:
            if hasattr(self, "timing"):
                self.timing.close()
            close_all(self.workers)
            if self.lock is not None:
                self.lock.release()
            self.progress("")
        self.report.printed = self.candidate.output()
        self.report.seconds = time.monotonic() - start
        return self.report

    def _conclude(self, stop: Stop) -> None:
        meddled = self.guard.meddled(self.workers)
        if meddled and stop.verdict.same:
            stop = Stop(Verdict.SUSPECT, meddled)
        elif meddled:
            self._note(meddled)
        self.report.verdict, self.report.reason, self.report.error = stop.verdict, stop.reason, stop.error

    def _failed(self, failure: Failure) -> Stop:
        """The verdict where a process did not answer."""
        details = failure.details
        if failure.kind == "killed" and self.build:  # a trusted process, while a candidate's was there
            return Stop(Verdict.CRASHED, f"{self.guard.killed(failure, self.candidate.isolation)}, while {self.stage}")
        if failure.role != "candidate":
            return Stop(
                Verdict.REFERENCE_FAILED, f"the reference failed while {self.stage}: {failure.message}", details
            )
        if failure.kind == "timeout":
            return Stop(Verdict.TIMED_OUT, f"the candidate was ended while {self.stage}: {failure.message}")
        if failure.kind == "raised" and details["type"] != "SystemExit" and (self.building or details["built"]):
            return Stop(Verdict.NOT_BUILT, failure.message, details)
        return Stop(Verdict.CRASHED, f"the candidate failed while {self.stage}: {failure.message}", details)

    def _start(self, role: str, limits: Limits) -> WorkerProcess:
        script = self.paths.get({"control": "reference"}.get(role, role))  # none for the null worker
        worker = WorkerProcess(
            role,
            limits,
            lambda waited: self.progress(self._line(waited)),
            script,
            self.paths["reference"],
            self.workers,
        )
        self.workers.append(worker)
        return worker

    def _line(self, waited: float) -> str:
        return f"{self.stage} ({waited:.0f} s)" if waited >= 1 else self.stage

    def _at(self, stage: str) -> None:
        self.stage = stage
        self.progress(stage)

    def _note(self, note: str) -> None:
        if note not in self.report.notes:
            self.report.notes.append(note)

    # ------------------------------------------------------------------------------------------------------ stages

    def _verify(self) -> None:
        self._load()
        self._lock_device()
        judgement = self._trials()
        if judgement.same:
            self.timing.start_others()
            judgement = self._probes()
        self._self_test()
        uncaught = [check["name"] for check in self.report.self_test if not check["caught"]]
        if not judgement.same:
            raise Stop(Verdict.DIFFERENT, judgement.reason)
        if uncaught:
            raise Stop(
                Verdict.NO_VERDICT,
                f"the check could not have failed: the judge would have passed {', '.join(uncaught)}",
            )
        self._time()

    def _load(self) -> None:
        self._at("loading the reference")
        self.reference.ask("load", path=str(self.paths["reference"]), class_name="Model")
        self.report.environment = self.reference.ask("machine").header["machine"]
        self.build = self.reference.ask("construct", seed=self.seed).value
        self._prepare_timing()
        self._at("loading and compiling the candidate")
        self.building = True
        wanted = "ModelNew" if self.kernel is None else "Model"
        self.candidate.ask("load", path=str(self.paths["candidate"]), kernel=self.kernel, class_name=wanted)
        self.candidate.ask("build", self.build, seed=self.seed)
        self.building = False

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
            self._note("other verifications used the device for too long to wait for: times may have been disturbed")

    # ------------------------------------------------------------------------------------------------------ trials

    def _trials(self) -> Judgement:
        """Compare on the reference's own inputs, one seed after another, in the same memory."""
        wanted = self.asked_trials or DEFAULT_TRIALS
        begin = time.monotonic()
        worst = Judgement()
        for number in range(wanted):
            started = time.monotonic()
            seed = self.seed + number
            self._at(f"comparing, trial {number + 1} of {wanted}")
            inputs = self.reference.ask("make_inputs", seed=seed).value
            if number:
                self.stale = self.right
            reply = self.reference.ask("forward", seed=seed)
            self.right, self.reference_seconds = reply.value, reply.wall
            if number == 0:
                self._examine(inputs)
            self.truths = self.truth.of(seed, self.right)
            self.candidate.ask("set_inputs", inputs)
            got = self._output(seed, first=number == 0)
            result = judge(got, self.truths)
            self.report.trials.append({"seed": seed, **judgement_record(result)})
            self._compare_inputs(inputs, number)
            if not result.same:
                return result
            if number == 0:
                self.report.deterministic = same_bits(got, self._output(seed))
            worst = result if not (result.closeness() < worst.closeness()) else worst
            self.trial_seconds = time.monotonic() - started
            left = wanted - number - 1
            late = time.monotonic() - begin + self.trial_seconds > self.trial_budget
            if self.asked_trials is None and left and number >= 1 and late:
                self._note(f"{number + 1} trials instead of {wanted}: one takes {self.trial_seconds:.0f} s here")
                break
        if self.report.inputs_unmodified is False:
            return Judgement(False, "the candidate modifies its inputs")
        return worst

    def _examine(self, inputs: Any) -> None:
        why_not = self.truth.examine()
        self.report.problem = {
            "contraction": self.truth.contraction,
            "why_not_a_contraction": why_not,
            "inputs": [shape_of(leaf) for _, leaf in leaves(inputs)],
            "parameters": {name: shape_of(t) for name, t in self.build["state"].items()},
            "outputs": [shape_of(leaf) for _, leaf in leaves(self.right)],
            "k": self.truth.k,
        }

    def _output(self, seed: int, first: bool = False) -> Any:
        """The candidate's output for the inputs that it has. At its `first` call it may still compile."""
        limits = self._limits(self.reference_seconds)
        if first:
            limits["timeout"] = None
        reply = self.candidate.ask("forward", seed=seed, limit=limits["max_payload"] - (1 << 20), **limits)
        if "too_large" in reply.header:
            raise Stop(
                Verdict.DIFFERENT, f"the output is far larger than the reference's: {reply.header['too_large']}"[:500]
            )
        devices = reply.header.get("devices")
        if devices and devices != [self.device]:
            raise Stop(Verdict.DIFFERENT, f"the output is on {devices}, the reference's on {self.device}"[:200])
        return reply.value

    def _limits(self, reference_seconds: float) -> dict[str, Any]:
        """How large and how late an output may be: 4 times the reference's size, 50 times its time, and some more."""
        size = _bytes(self.right)
        return {"max_payload": 4 * size + (64 << 20), "timeout": 60 + 50 * reference_seconds}

    def _compare_inputs(self, inputs: Any, number: int) -> None:
        size = _bytes(inputs)
        after = self.candidate.ask("get_inputs", max_payload=4 * size + (64 << 20), timeout=60 + size / 1e7).value
        same = same_bits(inputs, after)
        self.report.inputs_unmodified = same if number == 0 else bool(self.report.inputs_unmodified and same)

    # ------------------------------------------------------------------------------------------------------ probes

    def _probes(self) -> Judgement:
        """Compare on the probes' data. The first that fails decides; the others are reported as well."""
        contraction = self.truth.contraction
        if contraction is None:
            self._note(
                f"no probes: the reference is not one product with an epilogue ({self.report.problem['why_not_a_contraction']})"
            )
            return Judgement()
        begin = time.monotonic()
        worst = Judgement()
        with_state = any(str(contraction[name]).startswith("parameter") for name in ("a", "b", "bias"))
        for number, probe in enumerate(PROBES):
            self._at(f"probing: {probe.name}")
            record: dict[str, Any] = {"name": probe.name, "asks": probe.asks}
            self.report.probes.append(record)
            late = time.monotonic() - begin + self.trial_seconds / 2 > self.probe_budget
            data, reason = self._probe_data(probe, self.seed + 1000 + number, late)
            if reason is not None:
                record |= {"status": "skipped", "reason": reason}
                continue
            if with_state:
                self.candidate.ask("build", {"init": self.build["init"], "state": data["state"]}, seed=self.seed)
            self.candidate.ask("set_inputs", data["inputs"])
            result = self._judge_probe(probe)
            record |= {"status": "same" if result.same else "different", **judgement_record(result)}
            if not result.same and worst.same:
                worst = Judgement(False, f"probe {probe.name!r}: {result.reason}")
        if with_state:
            self.reference.ask("build", self.build, seed=self.seed)
            self.candidate.ask("build", self.build, seed=self.seed)
        return worst

    def _probe_data(self, probe: Probe, seed: int, late: bool) -> tuple[Any, str | None]:
        """A probe's inputs and parameters, which the reference then has; or None, and why the probe is skipped."""
        assert self.truth.contraction is not None
        float32 = {leaf.dtype for _, leaf in leaves(self.right)} == {torch.float32}
        reason = skip_reason(probe, self.truth.contraction["activation"], float32)
        if reason is None and late:
            reason = "left out for time"
        if reason is not None:
            return None, reason
        reply = self.reference.ask("probe", name=probe.name, seed=seed)
        return reply.value, reply.header.get("why_not")

    def _judge_probe(self, probe: Probe) -> Judgement:
        right = self.reference.ask("forward", seed=self.seed).value
        truths = self.truth.of_probe(probe, self.seed, right)
        if probe.name == "randn":
            self._spoil(truths)
        return judge(self._output(self.seed), truths)

    # ------------------------------------------------------------------------------------------------------ self-test

    def _spoil(self, truths: list[Truth]) -> None:
        """Have the reference's process compute the output for its present inputs wrongly on purpose.

        TF32 shows most clearly on zero-mean data, those of the probe `randn`. On data of one sign the errors of rounded
        operands average out, and at K above 10000 they are no larger than those of an honest sum.
        """
        if {truth.reference.dtype for truth in truths} == {torch.float32}:
            self._add_spoiled("operands rounded to TF32", "tf32", truths)
        if not any(name == "half of K" for name, *_ in self.made):
            self._add_spoiled("half of K", "half", truths)

    def _add_spoiled(self, name: str, how: str, truths: list[Truth]) -> None:
        output = self.reference.ask("spoiled", how=how).value
        self.made.append((name, selftest.substitute(self.right, lambda _: output), truths))

    def _self_test(self) -> None:
        self._at("testing the check itself")
        if self.truth.contraction is not None and not self.made:
            self._spoil(self.truths)
        if self.stale is None:
            self.reference.ask("make_inputs", seed=self.seed - 1)
            self.stale = self.reference.ask("forward", seed=self.seed - 1).value
        checks = selftest.run(self.right, self.truths, self.stale, self.made)
        self.report.self_test = [{"name": c.name, "caught": c.caught, "how": c.how} for c in checks]
        self.made, self.stale = [], None

    # ------------------------------------------------------------------------------------------------------ timing

    def _prepare_timing(self) -> None:
        """Time the reference before a candidate is loaded; see TimingStage."""

        def start(role: str) -> WorkerProcess:
            return self._start(role, Limits(max(self.limits.timeout, 300.0), float("inf")))

        self.timing = timed.TimingStage(
            self.reference, self.paths["reference"], self.seed, self.device, start, self._at
        )
        self._lock_device()
        self.timing.prepare()
        assert self.lock is not None
        self.lock.release()  # the candidate may compile for long
        self.reference.ask("build", self.build, seed=self.seed)  # as it was before these calls

    def _time(self) -> None:
        assert self.lock is not None
        self._wait_for(self.lock.acquire_exclusive)
        self._at("timing")
        slow = self.reference_seconds > SLOW
        timeout = self._limits(self.reference_seconds * 50)["timeout"]
        try:
            measured = self.timing.measure(self.candidate, self.timing_budget, 1 if slow else 3, timeout)
        except Odd as odd:
            verdict = Verdict.DIFFERENT if odd.role == "candidate" else Verdict.REFERENCE_FAILED
            raise Stop(verdict, f"the {odd.role}'s output of a timed call: {one_line(odd)}") from None
        self.report.timing = measured.record()
        self._judge_timed(measured)
        if measured.verdict is Verdict.FASTER and not measured.certain > 1:
            self._note(
                f"of a call's time, the tool's copy of the output is {in_units(measured.null - measured.exchange)}: a candidate "
                "that replaced this in its own process could have gained as much"
            )
        raise Stop(measured.verdict, measured.note)

    def _judge_timed(self, measured: Timing) -> None:
        """Judge outputs of timed calls like all others: a call that was timed must also be right."""
        for kept in measured.kept:
            self._at("judging timed calls' outputs")
            right = self.timing.reference_output(kept)
            result = judge(timed.rebuilt(right, iter(kept.leaves)), self.truth.of(kept.seed, right))
            self.report.timed_outputs.append({"why": kept.why, **judgement_record(result)})
            if not result.same:
                raise Stop(
                    Verdict.DIFFERENT, f"the output of a timed call, on fresh data in the same storage: {result.reason}"
                )


def _bytes(tree: Any) -> int:
    return sum(leaf.nbytes for _, leaf in leaves(tree) if isinstance(leaf, Tensor))
