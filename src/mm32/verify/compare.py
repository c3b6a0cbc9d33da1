"""The stages before timing: load both scripts, compare their outputs on several kinds of data, test the comparison itself.

trials.py has the script's own data, probing/ all others; here is what they share.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .exchange import handover
from .exchange.wire import beside, bytes_of, leaves, state_payload
from .inputs.contents import WIDEST
from .inputs.seen import Seen
from .judging import diagnosis, picture, selftest, state
from .judging.bounds import Truth
from .judging.judge import DECIDED_BY_ROUNDING, Judgement, as_tensors, judge
from .judging.likeness import Likeness
from .judging.selftest import STALE
from .probing import PassedProbe, Probing
from .stop import Stop
from .text import shortened
from .trials import Trials
from .verdict import Verdict

if TYPE_CHECKING:
    from .processes.process import WorkerProcess
    from .session import Session

# What is said where a reference decomposes a matrix: a float64 run, and a candidate, may turn any vector round.
SIGNS = (
    "The reference decomposes a matrix (eigenvectors, singular vectors or QR): the signs of its vectors are the library's "
    "choice. If the output depends on them, return what does not"
)
KEPT_BYTES = 256 << 20  # the most bytes of outputs and truths that are kept for the self-test
# For a slow model: how many probes' data timed windows hold if a trial with its judging takes at most so many seconds.
FEW_PASSED = (10.0, 2), (30.0, 1)
MOST_OUTPUT = 1 << 30  # bytes of a slow model's output above which they hold none: kept outputs would fill the card
# Seconds. A call on a probe's data that takes SLOW_CALL is never too slow. MOST_EXCESS is the most by which all such calls
# together may exceed what they are allowed.
SLOW_CALL, MOST_EXCESS = 1.0, 40.0


class Comparison:
    """Compares a session's candidate with its reference, and writes what is found into the session's report."""

    def __init__(self, session: Session):
        self.session = session
        self.report = session.report
        self.reference = session.reference
        self.candidate = session.candidate
        self.truth = session.truth
        self.build: dict[str, Any] = {}  # the reference's constructor arguments and parameters
        self.inputs: Any = None  # the script's own, of the last trial; while a probe is compared, the probe's
        self.names: list[str] | None = None  # names of the inputs, if get_inputs() gives a dict
        self.kept_inputs = False  # whether the reference's process keeps the inputs that variations start from
        self.right: Any = None  # the reference's last output
        self.before: Any = None  # the reference's output in the trial before
        self.varied: Any = None  # inputs and parameters of the last variation
        self.cases: list[tuple[Any, list[Truth]]] = []  # outputs of the reference for several inputs, and their truths
        self.made: list[tuple[str, Any, list[Truth]]] = []  # outputs computed wrongly on purpose
        self.buffers: set[str] = set()  # names of the reference's buffers
        # Names of those that the candidate does not have, if it has all parameters: probes leave them as they are.
        self.lacks: list[str] = []
        self.copied = True  # whether the candidate has the reference's parameters
        self.given: set[str] = set()  # names in the reference's state that the candidate's last build has too
        self.held: dict[str, bool] = {}  # by output, whether any comparison has left less than half of it to rounding
        self.undecided = ""  # how far rounding moves the output on the script's own data, if it decides too much there
        self.trial_seconds = 0.0
        self.bytes_of_output = 0  # bytes of the reference's output, noted when the output is forgotten
        self.usual_seconds = 0.0  # of the candidate's longest call in trials
        self.excess_seconds = 0.0  # seconds that the candidate's calls on probes' data took beyond what they may
        self.probing = False
        self.reference_seconds = 0.0
        self.passed: list[PassedProbe] = []  # data of probes that were passed, for timed windows
        self.likeness = Likeness(self.reference, self.truth)
        # parameters, buffers and other tensors that probes leave as they are, and how, in words
        self.unvaried: list[str] = []
        # Whether the reference sorts equal entries on the last data that `vary` made, and whether it factors matrices.
        self.tied = self.factors = False
        self.largest = 0.0  # the largest finite magnitude in the reference's output on the script's own data
        self.seen = Seen()  # what the inputs of everything compared so far have in common

    def run(self, after_trials: Callable[[], None] = lambda: None) -> None:
        """Run all stages after loading. `after_trials` is called if trials found no difference. Raises Stop unless the outputs
        are the same."""
        judgement = self.trials()
        if judgement.same:
            after_trials()
            self.probing = True
            probing = Probing(self)
            judgement = probing.run()
            self.passed = probing.passed
        if self.undecided and judgement.same:
            others = ("parameters", "parameters of one sign")
            if not any(p["name"] in others and p.get("status") == "same" for p in self.report.probes):
                raise Stop(Verdict.NO_VERDICT, f"{self.undecided}: nothing can be said of another's")
            self.session.note(
                f"{self.undecided} on its own data: what was compared is its answer with other parameters"
            )
        self.self_test()
        if not judgement.same:
            raise Stop(Verdict.DIFFERENT, judgement.reason + ("" if "NaN" in judgement.reason else self._on_signs()))
        uncaught = [check["name"] for check in self.report.self_test if not check["caught"]]
        if uncaught:
            raise Stop(Verdict.NO_VERDICT, _could_not_fail(uncaught))

    @property
    def output_bytes(self) -> int:
        """The bytes of one output of the reference."""
        return bytes_of(self.right)

    def passed_for_windows(self, few: bool) -> list[PassedProbe]:
        """Return the data of probes that timed windows hold as well: all that are kept, or with `few` only as many as there is
        time to judge."""
        if not few:
            return self.passed
        most = next((n for seconds, n in FEW_PASSED if self.trial_seconds <= seconds), 0)
        most = most if self.bytes_of_output <= MOST_OUTPUT else 0
        return random.SystemRandom().sample(self.passed, min(most, len(self.passed)))

    def forget(self) -> None:
        """Give back the memory of inputs and outputs: nothing more is compared."""
        self.bytes_of_output = self.output_bytes
        self.inputs = self.right = self.before = self.varied = None
        self.made, self.cases = [], []
        self.likeness.first_error = None
        self.seen.forget()
        if self.session.device == "cuda":
            handover.free(torch.device("cuda"))

    # ------------------------------------------------------------------------------------------------------ loading

    def load_reference(self) -> None:
        session = self.session
        session.at("loading the reference")
        self.reference.ask("load", path=str(session.paths["reference"]), class_name="Model")
        self.report.environment = self.reference.ask("machine").header["machine"]
        reply = self.reference.ask("construct", seed=session.seed)
        self.build, self.buffers = reply.value, set(map(str, reply.header.get("buffers") or ()))

    def load_candidate(self) -> None:
        session = self.session
        session.at("loading and compiling the candidate")
        session.building = True
        loaded = self._load_candidate(None)
        if loaded.get("device") != session.device:  # CUDA did not start there
            why = f"the candidate's process has no {session.device} device, which the reference's process uses"
            raise Stop(Verdict.NO_VERDICT, why)
        self.build_candidate(self.build)
        session.building = False
        if session.kernel is not None and session.device == "cpu":
            session.note("there is no GPU: mm32 calls torch's own product, so both sides run the same code")

    def _load_candidate(self, timeout: float | None) -> dict[str, Any]:
        """Load the candidate's script and return what the process says about it."""
        session = self.session
        wanted = "ModelNew" if session.kernel is None else "Model"
        path = str(session.paths["candidate"])
        reply = self.candidate.ask("load", path=path, kernel=session.kernel, class_name=wanted, timeout=timeout)
        return reply.header

    def reload_candidate(self, candidate: WorkerProcess, timeout: float) -> None:
        """Load and build the candidate in a fresh process, which is the candidate's from now on; `timeout`: for each step."""
        self.candidate = candidate
        self._load_candidate(timeout)
        self.build_candidate(self.build, timeout)
        if self.report.problem["changes"]:
            candidate.ask("keep_state", names=self.report.problem["changes"], timeout=timeout)

    def build_candidate(self, build: dict[str, Any], timeout: float | None = None) -> None:
        """Construct the candidate with these arguments and parameters; `copied` says whether it could take the parameters."""
        built = self.candidate.ask("build", build, seed=self.session.seed, timeout=timeout).header
        unlike, given = built.get("unlike"), built.get("given")
        self.given = {str(name) for name in given} if isinstance(given, list) else set()
        missing = [name for name in build["state"] if name not in self.given]
        if missing and self.copied and set(missing) <= self.buffers:  # it may compute constants itself
            if not self.lacks:
                self.lacks = missing
                self.unvaried += [f"buffer {name!r} other than it is" for name in missing]
        elif isinstance(unlike, list) and unlike:
            self.copied = False
            self.report.parameters_by = "seed"
            shown = "; ".join(str(one) for one in unlike[:3]) + (f"; {len(unlike) - 3} more" if len(unlike) > 3 else "")
            self.session.note(
                f"the candidate's parameters are not named or shaped as the reference's ({shown}): those come from the same seed "
                "before both constructors"
            )

    # ------------------------------------------------------------------------------------------------------ trials

    def trials(self) -> Judgement:
        """Compare on the script's own inputs (trials.py)."""
        return Trials(self).run()

    def keep_last(self) -> None:
        """Keep the reference's last output, if it is not too large: a candidate may give it again."""
        self.before = self.right if bytes_of(self.right) <= KEPT_BYTES else None

    def note_compared(self, *, first: bool = False, odd: bool = False) -> None:
        """Note that the candidate's output for the present inputs was compared. `odd`: they hold NaN and Inf, which lead to NaN
        whichever lines of the reference run, so these lines do not count as compared."""
        self.seen.note(self.inputs, first=first)
        if not odd:
            self.reference.ask("compared")

    # ------------------------------------------------------------------------------------------------------ for trials and probes

    def own_inputs(self, seed: int) -> Any:
        """Make the script's own inputs for a seed the reference's, and return them."""
        self.inputs = self.varied = None  # they may be gigabytes: the old ones go before the new ones come
        self.kept_inputs = False
        reply = self.reference.ask("make_inputs", seed=seed)
        self.names = reply.header.get("names")
        return reply.value

    def keep_inputs(self) -> None:
        """Let the reference keep a copy of its inputs, if it can: it restores them faster than they could be sent again."""
        self.kept_inputs = bool(self.reference.ask("keep_inputs").header["kept"])

    def restore_inputs(self) -> None:
        """Give the reference `inputs` again, after others were tried: from the copy that it keeps, if it has one."""
        if not (self.kept_inputs and self.reference.ask("restore_inputs").header["kept"]):
            self.reference.ask("set_inputs", self.inputs, names=self.names)

    def restore_parameters(self) -> None:
        """Give the reference its own parameters again, after others were tried: from the copy that it keeps, if it has one."""
        if not self.reference.ask("restore_parameters").header["kept"]:
            self.reference.ask("build", self.build, seed=self.session.seed)

    def give(self, inputs: Any) -> None:
        """Give the candidate these inputs."""
        self.candidate.ask("set_inputs", inputs, names=self.names)

    def forward(self, seed: int) -> None:
        """Call the reference. Its output goes into `right`, its time into `reference_seconds`. Raises Stop and Failure."""
        self.right = None
        reply = self.reference.ask("forward", seed=seed)
        self.right, self.reference_seconds = reply.value, max(reply.wall, float(reply.header.get("seconds", 0.0)))
        if reply.header.get("wrote"):
            raise Stop(
                Verdict.NO_VERDICT,
                f"the reference writes to its inputs ({', '.join(map(str, reply.header['wrote'][:4]))}): what it leaves there is "
                "not compared. Let it return that, and work on a copy",
            )

    def vary(self, name: str, seed: int) -> str | None:
        """Give the reference other data and keep them in `inputs`. Otherwise return why not: an empty text if they would show
        nothing. Raises OutOfMemoryError."""
        self.varied = None  # the data may be large: keep those of one variation at a time
        found = [leaf for _, leaf in leaves(self.right)]
        entries = sum(leaf.numel() if isinstance(leaf, Tensor) else 1 for leaf in found)
        integers = any(isinstance(t, Tensor) and t.dtype in WIDEST for t in found)
        steady = list(self.seen.steady)
        reply = self.reference.ask(
            "vary",
            name=name,
            seed=seed,
            entries=entries,
            integers=integers,
            steady=steady,
            keep=self.lacks,
            largest=self.largest,
        )
        self.unvaried += [str(one) for one in reply.header.get("unvaried") or ()]
        if "why_not" in reply.header:
            self.restore_inputs()
            if reply.header.get("short"):
                raise torch.OutOfMemoryError(str(reply.header["why_not"]))
            return str(reply.header["why_not"])
        self.inputs = reply.value["inputs"]
        self.varied, self.tied = reply.value, bool(reply.header.get("tied"))
        self.factors = bool(reply.header.get("factors"))
        return None

    def own_error(self, truths: list[Truth], trial: bool = False) -> str:
        """Return why the reference's own output cannot be held to these truths; empty if it can. If rounding decides it in a
        `trial`, probes with other parameters may still compare: a mean of normalised values is 0 with the usual ones."""
        own = judge(self.right, truths)
        if own.same:
            numbers = [as_tensors(t.reference, t)[1] if type(t.reference) is float else t for t in truths]
            loose = [t.without_ties().own()[1].normwise for t in numbers if t.noise is not None and t.u > 0]
            if loose and min(loose) > DECIDED_BY_ROUNDING:
                said = f"rounding alone moves the reference's output by {min(loose):.2g} of its size"
                if trial and self.build["state"]:
                    self.undecided = said
                    return ""
                return (
                    f"{said}: nothing can be said of another's. If it draws random numbers, then perhaps otherwise than by the "
                    "generators of torch, numpy and Python's random, which are seeded before each call"
                )
            return ""
        return (
            f"the reference's own result is further from its float64 run than rounding explains ({own.reason}): it computes "
            f"in a lower precision inside, such as TF32, or what it computes depends on how it is rounded{self._on_signs()}"
        )

    def _on_signs(self) -> str:
        """Return what to add to a reason if the reference computes vectors whose signs are not determined; else nothing."""
        return f". {SIGNS}" if self.truth.vectors else ""

    def keep(self, truths: list[Truth], trial: bool = True) -> None:
        """Keep the reference's output and its truths for the self-test. If they are large, a trial's replace older ones, and
        others are not kept: a variation's may all be zero, or one number, and a wrong output could be right for them."""
        size = bytes_of(self.right) * 5
        if self.cases and size * (len(self.cases) + 1) > KEPT_BYTES:
            if not trial:
                return
            self.cases = []
        self.cases.append((self.right, truths))

    def judge_output(self, got: Any, truths: list[Truth], of: str, result: Judgement | None = None) -> Judgement:
        """Judge a candidate's output, unless its `result` is given; `of` says which output it is. The report gets a picture of
        the first output that differs, or else of the first, and what the wrong entries of the first that differs have in
        common."""
        result = result or judge(got, truths)
        for truth in truths if result.same else ():
            self.held[truth.path] = self.held.get(truth.path, False) or not truth.excuses_most()
        self.draw(got, truths, result, of)
        if not result.same and not self.report.wrong:
            self.report.wrong = diagnosis.explain(got, truths, result, self.before)
            said = diagnosis.sentence(self.report.wrong)
            result.reason = f"{result.reason}. {said}" if said else result.reason
        return result

    def draw(self, got: Any, truths: list[Truth], result: Judgement, of: str) -> None:
        drawn = self.report.picture
        if drawn is None or (drawn["same"] and not result.same):
            self.report.picture = picture.paint(got, truths, result, of)

    def output(self, seed: int, first: bool = False, on: bool = False) -> Any:
        """Return the candidate's output for its present inputs. With `on`, state and random numbers go on from where its last
        call left them. In its `first` call it may still compile."""
        limits = self.limits(self.reference_seconds)
        if first:
            limits["timeout"] = self.session.limits.first_call
        reply = self.candidate.ask("forward", seed=seed, on=on, limit=limits["max_payload"] - (1 << 20), **limits)
        if not first:
            self._count_excess(reply.wall)
        if "too_large" in reply.header:
            raise Stop(
                Verdict.DIFFERENT,
                shortened(f"the output is far larger than the reference's: {reply.header['too_large']}", 500),
            )
        devices = reply.header.get("devices")
        if devices and devices != [self.session.device]:
            said = f"the output is on {devices}, the reference's on {self.session.device}"
            raise Stop(Verdict.DIFFERENT, shortened(said, 200))
        return beside(reply.value, self.right)

    def _count_excess(self, seconds: float) -> None:
        """Count what calls on probes' data take beyond what the candidate's usual time allows. The probes' budget is not charged
        with it, or a candidate that is slow there would have them left out. Raises Stop if it is too much."""
        if not self.probing:
            self.usual_seconds = max(self.usual_seconds, seconds)
            return
        allowed = max(SLOW_CALL, 20 * self.reference_seconds, 5 * self.usual_seconds)
        self.excess_seconds += max(0.0, seconds - allowed)
        if self.excess_seconds > MOST_EXCESS:
            raise Stop(
                Verdict.TIMED_OUT,
                f"on the data of probes its calls take {seconds:.3g} s, on the script's own {self.usual_seconds:.3g} s: they "
                "cannot be checked in any reasonable time",
            )

    def limits(self, reference_seconds: float) -> dict[str, Any]:
        """Return how large an output may be (4 times the reference's size and 64 MiB) and how late, by the session's limits."""
        size = bytes_of(self.right)
        return {"max_payload": 4 * size + (64 << 20), "timeout": self.session.limits.running(reference_seconds)}

    def compare_state(
        self,
        left: dict[str, Tensor],
        noise: dict[str, float],
        theirs: Any = None,
        found: dict[str, Tensor] | None = None,
    ) -> str:
        """Return how the candidate's buffers after a call differ from those that the reference has `left`; empty if they do not
        (state.difference). `theirs`: the candidate's buffers, if they are here already. `found`: the buffers as the call found
        them, if that was not as usual."""
        if theirs is None:
            theirs = self.candidate.ask("get_state", max_payload=state_payload(left)).value
        before = {name: (found or {}).get(name, usual) for name, usual in self.build["state"].items()}
        names = self.report.problem["changes"]
        return state.difference(names, before, left, theirs, self.given, noise, self.truth.working)

    # ------------------------------------------------------------------------------------------------------ self-test

    def spoil(self, truths: list[Truth], right: Any) -> None:
        """Have the reference's process compute the output for its present inputs wrongly on purpose.

        TF32 shows most clearly on zero-mean data, those of the probe `randn`. On data of one sign the errors of rounded
        operands average out, and at K above 10000 they are no larger than those of an honest sum.
        """
        if {truth.reference.dtype for truth in truths} == {torch.float32}:
            self._add_spoiled("operands rounded to TF32", "tf32", truths, right)
        if not any(name == "half of K" for name, *_ in self.made):
            self._add_spoiled("half of K", "half", truths, right)

    def _add_spoiled(self, name: str, how: str, truths: list[Truth], right: Any) -> None:
        output = self.reference.ask("spoiled", how=how).value
        self.made.append((name, selftest.substitute(right, lambda _: output), truths))

    def self_test(self) -> None:
        self.session.at("testing the check itself")
        if self.truth.contraction is not None and not self.made:
            self.spoil(self.cases[-1][1], self.cases[-1][0])
        stale = None
        if len(self.cases) == 1:
            self.reference.ask("make_inputs", seed=self.session.seed - 1)
            stale = self.reference.ask("forward", seed=self.session.seed - 1).value
        checks = selftest.run(self.cases, stale, self.made)
        self.report.self_test = [{"name": c.name, "caught": c.caught, "how": c.how} for c in checks]
        self.made, self.cases = [], []


def _could_not_fail(uncaught: list[str]) -> str:
    """Return why nothing can be said of any candidate. `uncaught`: names of the self-test's checks that the judge has passed."""
    passed = f"the judge would have passed {', '.join(uncaught)}"
    if STALE not in uncaught:
        return f"the check could not have failed: {passed}"
    return (
        "the reference gives the same output for all inputs that were tried, so nothing shows whether the candidate looks at "
        f"them: give it an input that matters ({passed})"
    )
