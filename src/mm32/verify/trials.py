"""The trials of a verification: both models on the script's own inputs, one seed after another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .exchange.wire import beside, bytes_of, leaves
from .inputs.catalogue import MIXED
from .inputs.contents import largest
from .judging.bounds import Truth
from .judging.judge import Judgement, judge, same_bits, shape_of
from .judging.widened import in_order
from .probing import far_data
from .probing.prober import SINGULAR_RAISED, cannot_factor
from .processes.channel import Failure
from .report import judgement_record
from .stop import Stop
from .verdict import Verdict

if TYPE_CHECKING:
    from .compare import Comparison

DEFAULT_TRIALS = 3


class Trials:
    """Compares on the script's own inputs, and writes each trial into the report."""

    def __init__(self, comparison: Comparison):
        self.comparison = comparison
        self.session = comparison.session
        self.report = comparison.report

    def run(self) -> Judgement:
        """Compare on the script's own inputs, one seed after another, in the same memory. From three trials on, those of the last
        one are mixed, if they can be."""
        comparison = self.comparison
        session = self.session
        wanted = session.asked_trials or DEFAULT_TRIALS
        begin = time.monotonic()
        worst = Judgement()
        for number in range(wanted):
            begin += session.let_others()
            started, excess = time.monotonic(), comparison.excess_seconds
            session.at(f"comparing, trial {number + 1} of {wanted}")
            result = self._trial(number, may_mix=number == wanted - 1 and number >= 2)
            if not result.same:
                return result
            worst = result if not (result.closeness() < worst.closeness()) else worst
            comparison.trial_seconds = time.monotonic() - started - (comparison.excess_seconds - excess)
            left = wanted - number - 1
            late = time.monotonic() - begin + comparison.trial_seconds > session.trial_budget
            if session.asked_trials is None and left and number >= 1 and late:
                session.note(
                    f"{number + 1} trials instead of {wanted}: one takes {comparison.trial_seconds:.0f} s here"
                )
                self.report.left_out.append(f"{left} of {wanted} trials")
                break
        if self.report.inputs_unmodified is False:
            return Judgement(False, "the candidate modifies its inputs")
        return worst

    def _trial(self, number: int, may_mix: bool) -> Judgement:
        """Run one trial and add it to the report. Raises Stop and Failure."""
        comparison = self.comparison
        seed = self.session.seed + number
        truths, mixed, left = self._reference_answers(number, seed, may_mix)
        comparison.keep(truths)
        comparison.give(comparison.inputs)
        comparison.probing = mixed
        try:
            got = comparison.output(seed, first=number == 0)
        except Failure as failure:
            # Mixed rows may make a matrix indefinite, or nearly singular, where the script's own are not.
            if not (mixed and comparison.factors and cannot_factor(failure)):
                raise
            self.report.left_out.append(SINGULAR_RAISED)
            comparison.probing = False
            return self._trial(number, may_mix=False)
        comparison.probing = False
        result = in_order(comparison.truth, judge(got, truths), truths, got, seed)
        result = comparison.judge_output(got, truths, f"trial {number + 1}", result)
        if result.same and not mixed:
            comparison.likeness.count_bits(result)
            said = comparison.likeness.of_trial(got, truths, result, seed, number)
            if number == 0:
                comparison.likeness.keep_first(got, truths, result)
            result = Judgement(False, said) if said else result
        if result.same and number == 1 and self.report.problem["changes"]:
            said = comparison.compare_state(left, comparison.truth.state)
            result = Judgement(False, said) if said else result
        record = {"seed": seed, "data": "mixed" if mixed else "the script's own", **judgement_record(result)}
        self.report.trials.append(record)
        self._compare_inputs(comparison.inputs, number)
        comparison.note_compared(first=number == 0)
        if result.same and number == 0:
            self.report.deterministic = same_bits(got, comparison.output(seed))
        return result

    def _reference_answers(self, number: int, seed: int, may_mix: bool) -> tuple[list[Truth], bool, dict[str, Tensor]]:
        """Make a trial's inputs and call the reference. Return the truths of its output, whether the inputs are mixed, and, in
        the second trial, the buffers that the call leaves. Raises Stop if nothing can be said about another's output."""
        comparison = self.comparison
        comparison.inputs = comparison.own_inputs(seed)
        mixed = may_mix and self._mixes(seed)
        comparison.keep_last()
        comparison.forward(seed)
        if number == 0:
            self._examine(seed)
        if not mixed:
            comparison.largest = max(comparison.largest, largest(leaf for _, leaf in leaves(comparison.right)))
        left = comparison.reference.ask("get_state").value if number == 1 else {}
        truths = comparison.truth.of(seed, comparison.right)
        self.report.problem["k"] = comparison.truth.k
        why_not = comparison.own_error(truths, trial=not mixed)
        if why_not and mixed:  # rounding decides too much there: back to the script's own
            mixed = False
            comparison.inputs = comparison.own_inputs(seed)
            comparison.forward(seed)
            truths = comparison.truth.of(seed, comparison.right)
            why_not = comparison.own_error(truths, trial=True)
        if why_not:
            raise Stop(Verdict.NO_VERDICT, why_not)
        if mixed:
            far_data.allow_mixed(truths, comparison.truth.decays)
        for truth in truths:
            truth.hold_to_bits()
        return truths, mixed, left

    def _examine(self, seed: int) -> None:
        """Find out what kind of model the reference is, and note it. Raises Stop if nothing could be said about an output."""
        comparison = self.comparison
        found = comparison.truth.examine(seed)
        outputs = [leaf for _, leaf in leaves(comparison.right)]
        self.report.problem = {
            "contraction": comparison.truth.contraction,
            "why_not_a_contraction": found.get("why_not"),
            "inputs": [shape_of(leaf) for _, leaf in leaves(comparison.inputs)],
            "parameters": {name: shape_of(t) for name, t in comparison.build["state"].items()},
            "outputs": [shape_of(leaf) for leaf in outputs],
            "k": comparison.truth.k,
            "draws": found.get("draws", []),
            "changes": found.get("buffers", []),
            "ignored": found.get("ignored", []),
            "not_given": found.get("not_given", []),
            "picks": any(comparison.truth.picks),
        }
        self._check_judgeable(found, outputs)
        self._note_state(found)
        if found.get("draws"):
            shown = ", ".join(name.removeprefix("aten::") for name in found["draws"])
            self.session.note(
                f"the reference draws random numbers ({shown}): both sides start from the same seed at every call, and "
                "the float64 truth takes the numbers that the reference drew"
            )

    @staticmethod
    def _check_judgeable(found: dict[str, Any], outputs: list[Any]) -> None:
        """Raise Stop if nothing could be said about a candidate's output."""
        if found.get("hidden"):
            raise Stop(
                Verdict.NO_VERDICT,
                f"the reference answers the same inputs differently: its forward changes {', '.join(found['hidden'][:4])}. "
                + (
                    "These are parameters, which every call has as the one before left them: let forward return what it "
                    "makes of them, and change none"
                    if found.get("trained")
                    else "Registered as a buffer, it would start from the same state at every call"
                ),
            )
        if not any(leaf.numel() if isinstance(leaf, Tensor) else leaf is not None for leaf in outputs):
            raise Stop(Verdict.NO_VERDICT, "there is nothing to compare: the reference's output is empty")
        floats = [leaf for leaf in outputs if isinstance(leaf, Tensor) and leaf.numel()]
        if floats and all(leaf.is_floating_point() and not bool(torch.isfinite(leaf).any()) for leaf in floats):
            raise Stop(
                Verdict.NO_VERDICT, "there is nothing to compare: the reference's output is NaN or infinite everywhere"
            )

    def _note_state(self, found: dict[str, Any]) -> None:
        """Let the candidate keep the state of the buffers that forward changes, and note which those are."""
        comparison = self.comparison
        if not found.get("buffers"):
            return
        comparison.candidate.ask("keep_state", names=found["buffers"])
        lacks = [
            repr(name)
            for name in found["buffers"]
            if name in comparison.build["state"] and name not in comparison.given
        ]
        if set(comparison.lacks) & set(found["buffers"]):  # no constants
            comparison.copied, comparison.lacks = False, []
        if lacks:
            shown = ", ".join(lacks[:4]) + (" and others" if len(lacks) > 4 else "")
            self.report.left_out.append(f"what calls leave in the buffers that the candidate has not: {shown}")
        shown = ", ".join(found["buffers"][:4]) + (" and others" if len(found["buffers"]) > 4 else "")
        self.session.note(f"the forward changes {shown}: every judged call starts from the same state on both sides")

    def _compare_inputs(self, inputs: Any, number: int) -> None:
        size = bytes_of(inputs)
        after = self.comparison.candidate.ask(
            "get_inputs", max_payload=4 * size + (64 << 20), timeout=60 + size / 1e7
        ).value
        same = same_bits(inputs, beside(after, inputs))
        self.report.inputs_unmodified = same if number == 0 else bool(self.report.inputs_unmodified and same)

    def _mixes(self, seed: int) -> bool:
        """Give the reference mixed inputs for a trial, and return whether it has them: without memory it has its own again."""
        try:
            return self.comparison.vary(MIXED, seed) is None
        except torch.OutOfMemoryError:
            return False
