"""One verification from beginning to end: start both processes, compare, test the comparison itself, time, decide."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import selftest, timing
from .probes import FEW, PROBES, SMOOTH, Probe, skip_reason
from .process import Failure, Limits, Reply, Worker, all_close
from .protocol import leaves, same_bits
from .report import Report, judgement_record, timing_record
from .turns import Turn
from .verdict import ROUNDOFF, Judgement, Truth, Verdict, judge, shape_of

DEFAULT_TRIALS = 3
# Seconds that may go into trials, probes and timing before they are cut down: a GPU hardly ever gets there.
BUDGETS = {"cpu": (14.0, 22.0, 8.0), "cuda": (60.0, 120.0, 15.0)}
SLOW = 0.2  # seconds a call, above which fewer are made
SMOOTH_ACTIVATIONS = ("gelu", "silu", "tanh", "sigmoid")


class Stop(Exception):
    """The verdict is known."""

    def __init__(self, verdict: Verdict, reason: str, error: dict[str, Any] | None = None):
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason
        self.error = error or {}


class Session:
    """The state of one verification; `run` is the whole of it."""

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
        self.report = Report(
            reference=str(reference), candidate=str(candidate) if candidate else f"kernel {kernel}", seed=seed
        )
        self.workers: list[Worker] = []
        self.turn: Turn | None = None
        self.contraction: dict[str, Any] | None = None
        self.k = 1
        self.build: dict[str, Any] = {}
        self.right: Any = None
        self.truths: list[Truth] = []
        self.stale: Any = None
        self.made: list[tuple[str, Any, list[Truth]]] = []
        self.seconds = {"reference": 0.0, "candidate": 0.0, "trial": 0.0}

    # ------------------------------------------------------------------------------------------------------ frame

    def run(self) -> Report:
        start = time.monotonic()
        try:
            # The reference may use what it likes: it is trusted, and only its hanging is guarded against.
            self.ref = self._start("reference", Limits(max(self.limits.timeout, 300.0), float("inf")))
            self.cand = self._start("candidate", self.limits)
            self._verify()
        except Stop as stop:
            self.report.verdict, self.report.reason, self.report.error = stop.verdict, stop.reason, stop.error
        finally:
            all_close(self.workers)
            if self.turn is not None:
                self.turn.leave()
            self.progress("")
        if len(self.workers) == 2:
            self.report.printed = self.workers[1].output()
        self.report.seconds = time.monotonic() - start
        return self.report

    def _start(self, role: str, limits: Limits) -> Worker:
        worker = Worker(role, limits, lambda waited: self.progress(self._line(waited)))
        self.workers.append(worker)
        return worker

    def _line(self, waited: float) -> str:
        return f"{self.stage} ({waited:.0f} s)" if waited >= 1 else self.stage

    def _at(self, stage: str) -> None:
        self.stage = stage
        self.progress(stage)

    def ask_reference(self, op: str, value: Any = None, **fields: Any) -> Reply:
        try:
            return self.ref.ask(op, value, **fields)
        except Failure as failure:
            raise Stop(
                Verdict.REFERENCE_FAILED, f"the reference failed while {self.stage}: {failure.message}", failure.details
            ) from None

    def ask_candidate(self, op: str, value: Any = None, *, building: bool = False, **fields: Any) -> Reply:
        try:
            return self.cand.ask(op, value, **fields)
        except Failure as failure:
            raise self._candidate_failed(failure, building) from None

    def _candidate_failed(self, failure: Failure, building: bool = False) -> Stop:
        details = failure.details
        if failure.kind == "timeout":
            return Stop(Verdict.TIMED_OUT, f"the candidate was ended while {self.stage}: {failure.message}")
        if failure.kind == "raised" and details.get("type") != "SystemExit" and (building or details.get("built")):
            return Stop(Verdict.NOT_BUILT, failure.message, details)
        return Stop(Verdict.CRASHED, f"the candidate failed while {self.stage}: {failure.message}", details)

    # ------------------------------------------------------------------------------------------------------ stages

    def _verify(self) -> None:
        self._at("loading the reference")
        self.ask_reference("load", path=str(self.paths["reference"]), **{"class": "Model"})
        self.report.environment = self.ask_reference("environment").header.get("environment", {})
        self.build = self.ask_reference("build", seed=self.seed).value
        self._at("loading and compiling the candidate")
        wanted = "ModelNew" if self.kernel is None else "Model"
        self.ask_candidate(
            "load", building=True, path=str(self.paths["candidate"]), kernel=self.kernel, **{"class": wanted}
        )
        self.ask_candidate("build", self.build, building=True, seed=self.seed)
        device = str(self.report.environment.get("device", "cpu")).split(":")[0]
        self.turn = Turn(str(self.report.environment.get("uuid", device)))
        self._wait_for(self.turn.share)
        self.trial_budget, self.probe_budget, self.timing_budget = BUDGETS.get(device, BUDGETS["cpu"])
        verdict = self._trials()
        if verdict.same:
            verdict = self._probes()
        self._self_test()
        uncaught = [case["name"] for case in self.report.self_test if not case["caught"]]
        if not verdict.same:
            raise Stop(Verdict.DIFFERENT, verdict.reason)
        if uncaught:
            raise Stop(
                Verdict.NO_VERDICT,
                f"the check could not have failed: the judge would have passed {', '.join(uncaught)}",
            )
        self._time()

    def _wait_for(self, turn: Callable[[Callable[[], None]], bool]) -> None:
        begin = time.monotonic()

        def waiting() -> None:
            self.stage = "waiting for other verifications that use the device"
            self.progress(self._line(time.monotonic() - begin))

        if not turn(waiting):
            self._note("other verifications used the device for too long to wait for: times may have been disturbed")

    def _limits_for_run(self, reference_seconds: float) -> dict[str, Any]:
        size = sum(leaf.nbytes for _, leaf in leaves(self.right) if isinstance(leaf, Tensor))
        return {"max_payload": 4 * size + (64 << 20), "timeout": 60 + 50 * reference_seconds}

    def _candidate_output(self, seed: int, first: bool = False) -> Any:
        """The candidate's output on the inputs it holds."""
        limits = self._limits_for_run(self.seconds["reference"])
        if first:
            limits["timeout"] = None  # it may compile at its first call
        reply = self.ask_candidate("forward", seed=seed, limit=limits["max_payload"] - (1 << 20), **limits)
        if "too_large" in reply.header:
            raise Stop(
                Verdict.DIFFERENT, f"the output is far larger than the reference's: {reply.header['too_large']}"[:500]
            )
        device = str(self.report.environment.get("device", "cpu")).split(":")[0]
        devices = reply.header.get("devices")
        if devices and devices != [device]:
            raise Stop(Verdict.DIFFERENT, f"the output is on {devices}, the reference's on {device}"[:200])
        if not isinstance(reply.header.get("seconds"), float):
            raise self._candidate_failed(Failure("channel", "answered without a time"))
        self.seconds["candidate"] = reply.wall
        return reply.value

    def _truths(self, seed: int, right: Any) -> list[Truth]:
        """The truth for the inputs that the reference holds."""
        exact: list[Any]
        try:
            exact = [leaf for _, leaf in leaves(self.ref.ask("oracle", seed=seed).value)]
        except Failure as failure:
            if failure.kind != "raised":
                raise Stop(Verdict.REFERENCE_FAILED, f"the reference failed in float64: {failure.message}") from None
            exact = []
            self._note(f"no float64 truth (the reference does not run in double: {failure.message[:120]}): "
                       "its own result stands in, with bounds twice as wide")  # fmt: skip
        found = leaves(right)
        if exact and (
            len(exact) != len(found)
            or any(shape_of(_narrow(x)) != shape_of(_narrow(r[1])) for x, r in zip(exact, found, strict=False))
        ):
            exact = []
            self._note("no float64 truth: in double the reference returns other shapes; its own result stands in")
        truths = []
        for i, (path, leaf) in enumerate(found):
            truth = exact[i] if exact else None
            if isinstance(truth, Tensor) and truth.is_floating_point() and truth.dtype != torch.float64:
                self._note(f"the reference casts to {truth.dtype} by itself: its float64 run is only in part in double")
            truths.append(Truth(path, leaf, truth, None, self.k))
        if self.contraction is not None:
            gauge = self.ask_reference("gauge").value
            if self.contraction["activation"] in SMOOTH_ACTIVATIONS and isinstance(truths[0].exact, Tensor):
                gauge = gauge + torch.nan_to_num(truths[0].exact.double().abs(), nan=0.0, posinf=0.0)
            truths[0].gauge = gauge
        return truths

    def _note(self, text: str) -> None:
        if text not in self.report.notes:
            self.report.notes.append(text)

    def _examine(self, inputs: Any, right: Any) -> None:
        header = self.ask_reference("examine").header
        self.contraction = header.get("contraction")
        lengths = header.get("lengths", [])
        self.k = self.contraction["k"] if self.contraction else max(1, sum(lengths))
        self.report.problem = {
            "contraction": self.contraction,
            "why_not_a_contraction": header.get("why_not"),
            "inputs": [shape_of(leaf) for _, leaf in leaves(inputs)],
            "parameters": {name: shape_of(t) for name, t in self.build["state"].items()},
            "outputs": [shape_of(leaf) for _, leaf in leaves(right)],
            "k": self.k,
        }

    def _trials(self) -> Judgement:
        """Compare on the reference's own inputs, one seed after another, in the same storage."""
        wanted = self.asked_trials or DEFAULT_TRIALS
        begin = time.monotonic()
        worst = Judgement()
        for number in range(wanted):
            started = time.monotonic()
            seed = self.seed + number
            self._at(f"comparing, trial {number + 1} of {wanted}")
            inputs = self.ask_reference("make_inputs", seed=seed).value
            if number:
                self.stale = self.right
            reply = self.ask_reference("forward", seed=seed)
            self.right, self.seconds["reference"] = reply.value, reply.wall
            if number == 0:
                self._examine(inputs, self.right)
            self.truths = self._truths(seed, self.right)
            self.ask_candidate("set_inputs", inputs)
            got = self._candidate_output(seed, first=number == 0)
            result = judge(got, self.truths)
            self.report.trials.append({"seed": seed, **judgement_record(result)})
            self._check_inputs(inputs, number)
            if not result.same:
                return result
            if number == 0:
                self.report.deterministic = same_bits(got, self._candidate_output(seed))
            worst = result if not (result.closeness() < worst.closeness()) else worst
            self.seconds["trial"] = time.monotonic() - started
            left = wanted - number - 1
            late = time.monotonic() - begin + self.seconds["trial"] > self.trial_budget
            if self.asked_trials is None and left and number >= 1 and late:
                self._note(f"{number + 1} trials instead of {wanted}: one takes {self.seconds['trial']:.0f} s here")
                break
        if self.report.inputs_unmodified is False:
            return Judgement(False, "the candidate modifies its inputs")
        return worst

    def _check_inputs(self, inputs: Any, number: int) -> None:
        size = sum(leaf.nbytes for _, leaf in leaves(inputs) if isinstance(leaf, Tensor))
        after = self.ask_candidate("fetch", max_payload=4 * size + (64 << 20), timeout=60 + size / 1e7).value
        same = same_bits(inputs, after)
        self.report.inputs_unmodified = same if number == 0 else bool(self.report.inputs_unmodified and same)

    # ------------------------------------------------------------------------------------------------------ probes

    def _probes(self) -> Judgement:
        if self.contraction is None:
            self._note(
                f"no probes: the reference is not one product with an epilogue ({self.report.problem['why_not_a_contraction']})"
            )
            return Judgement()
        begin = time.monotonic()
        dtypes = {leaf.dtype for _, leaf in leaves(self.right)}
        worst = Judgement()
        with_state = any(str(self.contraction[name]).startswith("parameter") for name in ("a", "b", "bias"))
        for number, probe in enumerate(PROBES):
            self._at(f"probing: {probe.name}")
            reason = skip_reason(probe, self.contraction["activation"], dtypes == {torch.float32})
            if reason is None and time.monotonic() - begin + self.seconds["trial"] / 2 > self.probe_budget:
                reason = "left out for time"
            if reason is None:
                reply = self.ask_reference("probe", name=probe.name, seed=self.seed + 1000 + number)
                reason = reply.header.get("why_not")
            if reason is not None:
                self.report.probes.append(
                    {"name": probe.name, "asks": probe.asks, "status": "skipped", "reason": reason}
                )
                continue
            data = reply.value
            if with_state:
                self.ask_candidate("build", {"init": self.build["init"], "state": data["state"]}, seed=self.seed)
            self.ask_candidate("set_inputs", data["inputs"])
            result = self._judge_probe(probe)
            status = "same" if result.same else "different"
            self.report.probes.append(
                {"name": probe.name, "asks": probe.asks, "status": status, **judgement_record(result)}
            )
            if not result.same and worst.same:
                worst = Judgement(False, f"probe {probe.name!r}: {result.reason}")
        if with_state:
            self.ask_reference("build", self.build, seed=self.seed)
            self.ask_candidate("build", self.build, seed=self.seed)
        return worst

    def _judge_probe(self, probe: Probe) -> Judgement:
        assert self.contraction is not None
        right = self.ask_reference("forward", seed=self.seed).value
        ((path, reference),) = leaves(right)
        if probe.judged == "rule":
            truths = self._truths(self.seed, right)
            if probe.name == "randn":
                self._spoil(truths)
        elif probe.judged == "bitwise":
            truths = [Truth(path, reference, bitwise=True)]
        elif probe.judged == "relative":
            smooth = self.contraction["activation"] in SMOOTH_ACTIVATIONS
            u = ROUNDOFF[reference.dtype]
            truths = [Truth(path, reference, relative=(SMOOTH if smooth else FEW) * u, floor=1.0 if smooth else 0.0)]
        else:
            truths = [Truth(path, reference, k=self.k)]
        return judge(self._candidate_output(self.seed), truths)

    # ------------------------------------------------------------------------------------------------------ self-test

    def _spoil(self, truths: list[Truth]) -> None:
        """Have the reference's process compute the current inputs' output wrongly on purpose.

        Rounding to TF32 is told best on zero-mean data: on data of one sign its errors average out, and at K above
        10000 they are no longer larger than those of an honest sum. So that is what the `randn` probe's data are for.
        """
        assert self.contraction is not None
        if {truth.reference.dtype for truth in truths} == {torch.float32}:
            self._add_spoiled("operands rounded to TF32", "tf32", truths)
        if not any(name == "half of K" for name, *_ in self.made):
            self._add_spoiled("half of K", "half", truths)

    def _add_spoiled(self, name: str, how: str, truths: list[Truth]) -> None:
        output = self.ask_reference("spoiled", how=how).value
        self.made.append((name, selftest.substitute(self.right, lambda _: output), truths))

    def _self_test(self) -> None:
        self._at("testing the check itself")
        if self.contraction is not None and not self.made:
            self._spoil(self.truths)
        if self.stale is None:
            self.ask_reference("make_inputs", seed=self.seed - 1)
            self.stale = self.ask_reference("forward", seed=self.seed - 1).value
        cases = selftest.run(self.right, self.truths, self.stale, self.made)
        self.report.self_test = [{"name": c.name, "caught": c.caught, "how": c.how} for c in cases]
        self.made, self.stale = [], None

    # ------------------------------------------------------------------------------------------------------ timing

    def _time(self) -> None:
        assert self.turn is not None
        self._wait_for(self.turn.alone)
        self._at("timing")
        inputs = self.ask_reference("make_inputs", seed=self.seed + 500).value
        self.ask_candidate("set_inputs", inputs)
        del inputs
        with self._failures_of_the_candidate():
            cost = self._cost()
            slow = cost > SLOW
            measured = timing.measure(
                self.ref,
                self.cand,
                cost,
                self.timing_budget,
                keep=1 if slow else 3,
                progress=self._at,
                **self._limits_for_run(self.seconds["reference"] * 50),
            )
        self.report.timing = timing_record(measured)
        if slow and len(measured.reference.rounds) < timing.MAX_ROUNDS:
            self._note(f"{len(measured.reference.rounds)} timing rounds instead of {timing.MAX_ROUNDS}")
        self._judge_timed(measured)
        raise Stop(measured.verdict, measured.note)

    def _cost(self) -> float:
        """Seconds of a call, warm, by this process's clock: the slower side's."""
        costs = []
        for worker in (self.ref, self.cand):
            best = math.inf
            for calls in (1, 3, 3):
                best = min(
                    best,
                    worker.ask("time", calls=[None] * calls, flush=False, keep=None, seed=0, two=True).wall / calls,
                )
                if best > SLOW:
                    break
            costs.append(best)
        return max(costs)

    def _judge_timed(self, measured: timing.Timing) -> None:
        """The timed calls' outputs are judged like any other: a call that was timed must also have been right."""
        for kept in measured.kept:
            self._at("judging timed calls' outputs")
            self.ask_reference("refill", shift=kept.shift)
            result = judge(kept.candidate, self._truths(0, kept.reference))
            self.report.timed_outputs.append({"burst": kept.burst, **judgement_record(result)})
            if not result.same:
                raise Stop(
                    Verdict.DIFFERENT, f"the output of a timed call, on fresh data in the same storage: {result.reason}"
                )

    @contextlib.contextmanager
    def _failures_of_the_candidate(self) -> Any:
        try:
            yield
        except Failure as failure:
            if failure.role == "reference":
                raise Stop(
                    Verdict.REFERENCE_FAILED, f"the reference failed while {self.stage}: {failure.message}"
                ) from None
            raise self._candidate_failed(failure) from None


def _narrow(value: Any) -> Any:
    """The value with its precision left out, to compare shapes by."""
    return (
        value.to(torch.float32)
        if isinstance(value, Tensor) and value.is_floating_point()
        else value
        if isinstance(value, Tensor)
        else type(value)
    )
