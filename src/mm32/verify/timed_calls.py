"""Judges outputs of timed calls like all others: a call that was timed must also be right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .compare import Comparison
from .exchange import wire
from .judging.bounds import ROUNDOFF, Truth
from .judging.judge import Judgement, judge
from .judging.sizes import held_tightly
from .judging.truth import TruthSource
from .judging.widened import perturbed_again
from .probing.varied import DECIDES, PERTURBED
from .report import judgement_record
from .stop import Stop
from .text import one_line
from .timing.kept_outputs import UNTIMED, Kept, Misfit
from .timing.stage import TimingStage
from .verdict import Verdict

if TYPE_CHECKING:
    from .session import Session

UNTIMABLE = "not timed: the shapes of the reference's outputs depend on its data"
SLOT, OTHERWISE = ", the reference's is ", ", for other data it is "


class TimedCalls:
    """Judges the timed calls of a session, for all its baselines. `perturbed`: how many outputs needed a perturbed run."""

    def __init__(self, session: Session, comparison: Comparison, truth: TruthSource):
        self.session, self.comparison, self.truth = session, comparison, truth
        self.perturbed = 0

    @contextlib.contextmanager
    def misfits(self, stage: TimingStage) -> Iterator[None]:
        try:
            yield
        except Misfit as misfit:
            raise self.of_misfit(misfit, stage) from None

    def of_misfit(self, misfit: Misfit, stage: TimingStage) -> Stop:
        """Return the verdict if a slot could not take an output. If the shapes of the reference's outputs depend on the data, its
        calls cannot be timed, and some of them are judged without being timed. Raises Stop if one is different."""
        steady, calls, comparison = True, misfit.calls[:UNTIMED], self.comparison
        own = sum(not probe for _, _, probe in calls)
        for recipe, seed, probe in calls:
            self.session.at("judging calls that could not be timed")
            right = comparison.right = stage.reference_output(recipe, seed)
            steady = steady and stage.fits(right)
            stage.give_candidate(recipe)
            got = comparison.output(seed)
            if misfit.role == "candidate" and steady and not stage.fits(got):
                break  # the output does not fit here either
            self._call(got, right, seed, probe, "of data that are not timed", own)
        if misfit.role == "candidate" and steady:
            return Stop(Verdict.DIFFERENT, f"the candidate's output of a timed call: {one_line(misfit)}")
        said = f" ({one_line(misfit).replace(SLOT, OTHERWISE)})" if misfit.role != "candidate" else ""
        return Stop(Verdict.INCONCLUSIVE, UNTIMABLE + said)

    def judge_all(self, stage: TimingStage, outputs: Sequence[Kept]) -> float:
        """Judge outputs of timed calls like all others: a call that was timed must also be right. Return the seconds of waiting
        for other verifications meanwhile."""
        own = sum(not kept.probe for kept in outputs)  # those on the script's own data
        waited = 0.0
        for kept in outputs:
            waited += self.session.let_others()
            self.session.at("judging timed calls' outputs")
            right = stage.reference_output(kept.recipe, kept.seed)
            got = wire.beside(wire.rebuilt(right, iter(kept.leaves)), right)
            left = stage.eager.ask("get_state").value if kept.state is not None else {}
            perturb = kept.state is not None  # what rounding does to the buffers takes a perturbed run
            self._call(got, right, kept.seed, kept.probe, kept.why, own, perturb)
            before = stage.pools.state_of(kept.recipe) if left and stage.pools.state else None
            said = self.comparison.compare_state(left, self.truth.state, kept.state, before) if left else ""
            if said:
                raise Stop(Verdict.DIFFERENT, f"a timed call, on fresh data in the same storage: {said}")
        if self.session.card is not None:  # the next windows may need the memory
            stage.eager.ask("let_go")
        return waited

    def _call(
        self,
        got: Any,
        right: Any,
        seed: int,
        probe: str,
        why: str,
        own: int,
        perturb: bool = False,
    ) -> None:
        """Judge an output for data as timed calls get them, which the reference has now. `own`: how many such outputs are on the
        script's own data. `perturb`: make a perturbed run in any case. Raises Stop if the output differs."""
        comparison = self.comparison
        of = {one.name: one.truths for one in comparison.passed}[probe] if probe else self.truth.of
        truths, result = self.soon(of, got, right, seed, perturb)
        if not result.same and probe and not judge(right, truths).same:
            # The reference's own answer is further from its float64 run than rounding explains, as for probes.
            self.session.note(f"a timed call on the data of probe {probe!r} is not judged: {DECIDES}")
            return
        self.session.report.timed_outputs.append({"why": why, **judgement_record(result)})
        if not result.same:
            comparison.draw(got, truths, result, "a timed call")
            where = f"the data of probe {probe!r}" if probe else "fresh data"
            raise Stop(
                Verdict.DIFFERENT, f"the output of a timed call, on {where} in the same storage: {result.reason}"
            )
        said = "" if probe else comparison.likeness.of_timed_call(got, truths, result, seed, own)
        if said:
            raise Stop(Verdict.DIFFERENT, f"the output of a timed call, on fresh data in the same storage: {said}")

    def soon(
        self, of: Callable[..., list[Truth]], got: Any, right: Any, seed: int, perturb: bool
    ) -> tuple[list[Truth], Judgement]:
        """Return the truths that an output is judged by, those of `of` for the reference's output `right`, and the judgement.

        A perturbed run takes as long as a float64 run, and up to five are made. So one is made only if the output is not the same
        without it, with every part held to narrower bounds. After PERTURBED outputs that needed one it is made at once, as for
        probes. If the output is all integers, booleans and the like, and equal to the reference's, no float64 run can add
        anything."""
        if not perturb and not any(_rounded(leaf) for _, leaf in wire.leaves(right)):
            truths = [Truth(path, leaf) for path, leaf in wire.leaves(right)]
            if (result := judge(got, truths)).same:
                return truths, result
        # For a product no run is perturbed.
        if not perturb and self.truth.contraction is None and self.perturbed < PERTURBED:
            truths = held_tightly(of(seed, right, noise=False))
            if (result := judge(got, truths)).same:
                return truths, result
            self.perturbed += 1
        truths = of(seed, right)
        return truths, perturbed_again(self.truth, judge(got, truths), truths, got, right, seed)


def _rounded(leaf: Any) -> bool:
    """Return whether a leaf of an output holds numbers that rounding may move and whose error is measured."""
    return leaf.dtype in ROUNDOFF if isinstance(leaf, Tensor) else isinstance(leaf, (float, complex))
