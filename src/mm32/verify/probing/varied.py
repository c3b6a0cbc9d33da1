"""Probes for any model: its own data and parameters, changed (inputs/variations.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..exchange.wire import leaves
from ..inputs import redrawn
from ..inputs.catalogue import LATER_INPUT, MILDER, NO_PARAMETERS, VARIATIONS, Variation
from ..inputs.contents import LEAST, WIDEST
from ..inputs.isolating import FEW, ISOLATING
from ..inputs.states import not_given
from ..judging.bounds import U32, Truth
from ..judging.judge import Judgement, judge
from ..judging.likeness import FINE
from ..judging.odd_values import INF_HINT, SPREAD_HINT
from ..judging.widened import perturbed_again, unsteady, widen
from ..report import judgement_record
from . import far_data
from .odd_answers import OddAnswers
from .prober import INDEFINITE_RAISED, LATE, ODD_RAISED, RAISES, UNSET

if TYPE_CHECKING:
    from ..compare import Comparison

DECIDES = "rounding decides the reference's own answer there"
MANY_TERMS = "sums have many terms there even so"
PERTURBED = 3  # after so many probes that needed a perturbed float64 run, all others get one at once
ELSEWHERE = 4  # how many times NaN and Inf are put elsewhere, at most
# The most entries of an output whose bound is found anew where sums of equal terms may explain an error.
MOST_EQUAL = {"cpu": 1 << 24, "cuda": 1 << 26}
TF32_BITS = 11
# The most additions that round, on data whose sums should have few terms: with more the probe would show nothing.
ADDITIONS = 16.0
# How many variations come before the data of isolating.py: what comes last is left out first where time is short. Variations
# of parameters come one after another, since the candidate is made anew with each.
FIRST = 6
SLOW_TRIAL = 1.5  # seconds of a trial with its judging; where it takes longer, the data of isolating.py come last
DRAWS = 2  # how often impulses are drawn where the output has few entries: one may be right by chance

MOST_INPUTS = 24  # the most inputs into which a NaN is put, one after the other
LACKS = "the candidate has no such tensors"
# What the verdict's line says if the candidate raises on data of a kind that get_inputs() never makes, by the probe's name.
MAY_RAISE = {"indefinite": INDEFINITE_RAISED}


class VariedProbes(OddAnswers):
    """Probes of any model but a product."""

    def __init__(self, comparison: Comparison):
        super().__init__(comparison)
        # A function that makes the truths of the last variation's data, and these data; None if they were not passed.
        self.passed_data: tuple[Callable[..., list[Truth]], Any] | None = None
        self.altered = False  # the candidate has other parameters than the reference's own
        self.perturbed = 0  # probes for which a perturbed run was needed

    def run(self, begin: float) -> Judgement:
        comparison = self.comparison
        worst = Judgement()
        own = comparison.inputs = comparison.own_inputs(self.session.seed)
        comparison.keep_inputs()
        self.usual_odd = self.odd_inputs()
        draws = DRAWS if self.entries() <= FEW else 1
        few = [v for v in ISOLATING for _ in range(draws if v.name == "impulses" else 1)]
        # A float64 run takes several times as long on the data of isolating.py. Where it takes long anyway, all variations
        # come before.
        first = FIRST if comparison.trial_seconds <= SLOW_TRIAL else len(VARIATIONS)
        kinds = [*VARIATIONS[:first], *few]
        for variation in VARIATIONS[first:]:
            times = redrawn.TURNS if variation.name in redrawn.REPEATED and self._few_integers() else 1
            kinds += [variation] * (self._later_inputs() if variation.name == LATER_INPUT else times)
        for number, variation in enumerate(kinds):
            self.next(variation.name)
            if (variation.few and self.entries() > FEW) or self._again_in_vain(variation):
                continue
            if variation.places and not self._integers():
                continue
            seed = self.session.seed + 1000 + number
            skipped: list[dict[str, Any]] = []
            for one in (variation, *(MILDER[name] for name in variation.milder)):
                result, milder = self._probe_again(one, seed, own, begin)
                if result is not None and not result.same and worst.same:
                    worst = Judgement(False, f"probe {one.name!r}: {result.reason}")
                if not milder or (one.name == "times 100000" and self._decided("times 100")):
                    break
                skipped.append(self.report.probes.pop())
            else:
                self.report.probes.append(skipped[0])
        self._build_as_usual()
        return worst

    def _later_inputs(self) -> int:
        """Return into how many inputs, beside the first, a NaN is put by itself."""
        found = (leaf for _, leaf in leaves(self.comparison.inputs))
        return min(MOST_INPUTS, max(1, sum(isinstance(t, Tensor) and t.is_floating_point() for t in found) - 1))

    def _few_integers(self) -> bool:
        """Whether an input is one integer, or few."""
        found = (leaf for _, leaf in leaves(self.comparison.inputs))
        return any(type(t) is int or (isinstance(t, Tensor) and t.dtype in WIDEST and t.numel() < LEAST) for t in found)

    def _probe_again(self, variation: Variation, seed: int, own: Any, begin: float) -> tuple[Judgement | None, bool]:
        """Run `_probe`, and run it again with NaN and Inf put elsewhere where the candidate's NaN may be there by chance.

        It is run again, at most ELSEWHERE times, where the candidate makes NaN of what is Inf or finite in the reference. A
        gate of 0, or two Infs that meet, make NaN by chance, and may leave nothing that is finite; a split product without a
        guard makes it always. A later run whose Infs leave none in the reference's output does not overturn the failure, nor
        does one on which the candidate raises.
        """
        before = self.report.wrong, self.report.picture
        failed: tuple[Judgement, dict[str, Any], tuple[Any, Any]] | None = None
        for again in range(ELSEWHERE + 1):
            last = again == ELSEWHERE
            result, milder = self._probe(variation, seed + 100 * again, own, begin, last)
            if failed is not None:
                raised = result is None and str(self.report.probes[-1].get("reason", "")).startswith(RAISES)
                says_nothing = INF_HINT in failed[0].reason and _is_same(result) and not self.infinite()
                if raised or says_nothing:
                    self.report.probes.pop()
                    if not (raised or last):
                        continue
                    result, record, (self.report.wrong, self.report.picture) = failed
                    self.report.probes.append(record)
                    break
            if result is None or result.same or not variation.odd or last:
                break
            if INF_HINT not in result.reason and SPREAD_HINT not in result.reason:
                break
            failed = result, self.report.probes.pop(), (self.report.wrong, self.report.picture)
            self.report.wrong, self.report.picture = before
        if _is_same(result) and self.passed_data is not None:
            self.passed.keep(variation.name, *self.passed_data)
        self.passed_data = None
        return result, milder

    def _probe(
        self, variation: Variation, seed: int, own: Any, begin: float, last: bool
    ) -> tuple[Judgement | None, bool]:
        """Run one variation of the `own` inputs. Return its judgement, None if it is left out, and whether a milder one may
        do. `last`: NaN and Inf are not put elsewhere any more."""
        comparison = self.comparison
        self.passed_data = None
        record: dict[str, Any] = {"name": variation.name, "asks": variation.asks}
        self.report.probes.append(record)
        reason = LATE if self.late(begin) else None
        if reason is None and variation.state and not comparison.copied:
            reason = UNSET
        if reason is not None:
            record |= {"status": "skipped", "reason": reason}
            return None, False
        comparison.inputs = own
        try:
            reason = comparison.vary(variation.name, seed)
        except torch.OutOfMemoryError:
            self.without_memory(record)
            if variation.state:
                comparison.restore_parameters()
            return None, False
        if reason == "":
            self.report.probes.remove(record)
            return None, False
        if reason is not None:
            record |= {"status": "skipped", "reason": reason}
            if variation.state:  # the reference may have found the reason only once it was changed
                comparison.restore_parameters()
            return None, reason != NO_PARAMETERS
        if not variation.state:
            self._build_as_usual()
        if comparison.tied:
            variation = replace(variation, ties=True)
        result = self._judge_variation(variation, seed, record, last)
        if record.get("reason") == LACKS:
            self.report.probes.remove(record)
        if variation.state:
            comparison.restore_parameters()
            self.altered = True
        comparison.inputs = own
        comparison.restore_inputs()
        return result, record.get("reason") == DECIDES

    def _build_as_usual(self) -> None:
        """Make the candidate with the reference's own parameters again, if the last variation was of those."""
        if self.altered:
            self.comparison.build_candidate(self.comparison.build)
            self.altered = False

    def _decided(self, name: str) -> bool:
        """Whether rounding decided what the answer of this probe is."""
        return any(p["name"] == name and p.get("reason") == DECIDES for p in self.report.probes)

    def _again_in_vain(self, variation: Variation) -> bool:
        """Whether the last probe was of the same kind and was left out, as the next would be."""
        last = self.report.probes[-1] if self.report.probes else {}
        return bool(variation.isolating and last.get("name") == variation.name and last["status"] == "skipped")

    def _judge_variation(self, variation: Variation, seed: int, record: dict[str, Any], last: bool) -> Judgement | None:
        comparison = self.comparison
        if variation.state:
            build = {"init": comparison.build["init"], "state": comparison.varied["state"]}
            turned = comparison.varied["plain"]
            if turned and self._lacks(build | {"plain": turned}):
                self.report.left_out.append(not_given(turned))
                record |= {"status": "skipped", "reason": LACKS}
                return None
            if not turned:
                comparison.build_candidate(build)
        comparison.forward(seed)
        found = None
        with suppress(torch.OutOfMemoryError):
            found = self._truths_and_output(variation, seed)
        if found is None:
            self.without_memory(record)
            return None
        if isinstance(found, str):
            record |= {"status": "skipped", "reason": found}
            return None
        truths, got, first = found
        if not variation.odd:
            comparison.keep(truths, trial=False)
        result: Judgement | None = None
        free: dict[str, tuple[Tensor, Tensor]] = {}
        compares = False
        spread: dict[str, Tensor] = {}
        instead = False  # the candidate has one of the other answers that a kernel may make of NaN and Inf
        with suppress(torch.OutOfMemoryError):
            if not first.same and not variation.isolating:
                first = perturbed_again(self.truth, first, truths, got, comparison.right, seed, variation.equal)
            if not first.same and variation.odd:
                free, compares, answers = self.free_answers(truths, seed)
                first, others = self.other_answers(truths, answers, got)
                truths, instead = others or truths, others is not None
            equal = variation.equal and self.entries() <= MOST_EQUAL[self.session.device]
            if equal and not first.same:
                self._allow_equal(truths, seed, comparison.right)
                first = judge(got, truths)
            if not first.same and variation.further and (last or INF_HINT not in first.reason):
                first, spread = self.spread_further(first, variation, truths, got)
            if not first.same and variation.name in far_data.ENLARGED and unsteady(truths):
                record |= {"status": "skipped", "reason": DECIDES}
                return None
            result = comparison.judge_output(got, truths, f"probe {variation.name}", first)
        if result is None:
            self.without_memory(record)
            return None
        record |= {"status": "same" if result.same else "different", **judgement_record(result)}
        comparison.note_compared(odd=variation.odd)
        drawn = variation.odd and self.report.problem["draws"]  # what NaN and Inf do depends on what a call draws
        if result.same and not variation.state and not drawn and not instead:
            of = partial(self._truths, variation, free=free, compares=compares, equal=equal, spread=spread)
            self.passed_data = of, comparison.inputs
        if variation.isolating:
            self._count_bits(result)
        if variation.name == "zero-mean":
            self._coarse(seed, truths, result)
        return result

    def _truths_and_output(self, variation: Variation, seed: int) -> tuple[list[Truth], Any, Judgement] | str:
        """Return the truths of a variation's output, the candidate's output, and its judgement; or why the probe is left out.

        Perturbing the float64 run takes as long as the run itself. So it is asked for only where the rule's own bounds,
        without what it would allow, are too narrow for the reference or for the candidate: where both are within them, it
        says nothing more. After PERTURBED probes for which it was needed, it is asked for at once.
        """
        comparison = self.comparison
        quick = not variation.isolating and self.perturbed < PERTURBED
        truths = self._truths(variation, seed, comparison.right, {}, noise=not quick)
        far = variation.name == "peaks" and self.truth.decays
        if variation.isolating and (far or not (self.truth.additions <= ADDITIONS)):
            return MANY_TERMS
        got = None
        may_raise = ODD_RAISED if variation.odd else MAY_RAISE.get(variation.name, "")
        if quick and judge(comparison.right, truths).same:
            comparison.give(comparison.inputs)
            got, raised = self.output(seed, may_raise)
            if raised:
                return raised
            if (found := judge(got, truths)).same:
                return truths, got, found
        if quick:
            self.perturbed += 1
            truths = self._truths(variation, seed, comparison.right, {})
        if self.truth.raises or comparison.own_error(truths):
            return DECIDES
        if got is None:
            comparison.give(comparison.inputs)
            got, raised = self.output(seed, may_raise)
            if raised:
                return raised
        return truths, got, judge(got, truths)

    def _lacks(self, build: dict[str, Any]) -> bool:
        """Make the candidate anew with tensors for its plain attributes. Return whether it lacks one of these."""
        lacks = self.comparison.candidate.ask("build", build, seed=self.session.seed).header.get("lacks")
        return not isinstance(lacks, list) or bool(lacks)

    def _truths(
        self,
        variation: Variation,
        seed: int,
        right: Any,
        free: dict[str, tuple[Tensor, Tensor]],
        noise: bool = True,
        equal: bool = False,
        compares: bool = False,
        spread: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> list[Truth]:
        """Return the truths of the reference's output for a variation's data, with what else is right for these. `equal`:
        also with what sums of equal terms may be off. `spread`: Truth.spread of its tensors, by path."""
        truths = self.truth.of(seed, right, few=variation.isolating, noise=noise)
        for i, truth in enumerate(truths):
            # A sum of Inf and -Inf is NaN. A kernel that adds up the weights before the product, which is the same except
            # for Inf, makes it Inf, and behind an activation a number. Data that hold a NaN are another matter.
            truth.either = variation.name == "an Inf"
            truth.spreads, truth.spread = variation.spreads, spread.get(truth.path)
            truth.by_row = variation.rare
            far_data.allow(truth, variation, self.truth.decays)
            truth.free, truth.compares = free.get(truth.path), compares
            integers = isinstance(truth.reference, Tensor) and truth.u == 0
            odd = variation.odd and integers and truth.reference.dtype != torch.bool
            # Booleans too may depend on what was picked: whether the best word ends a sentence.
            if variation.ties and integers and (odd or self.truth.may_pick(i)):
                truth.tied = None if variation.odd else truth.flips
                truth.flips = truth.reference.numel()  # the place of a NaN, or of one of several equal entries
        if equal and noise:
            self._allow_equal(truths, seed, right)
        return truths

    def _allow_equal(self, truths: list[Truth], seed: int, right: Any) -> None:
        """Widen bounds by what a sum of equal terms may be off: all terms are rounded the same way, so errors do not average
        out. 4096 equal losses, added up in order, are 750 u off."""
        widen(truths, self.truth.of(seed, right, few=True))

    def _count_bits(self, result: Judgement) -> None:
        """Note how many bits the candidate computes with, where the reference's own error is a few u: rounding counts for no
        more."""
        error, own = result.errors.normwise, result.reference.normwise
        if result.measured and own <= FINE * U32 and 0 <= error < math.inf:
            self.bits.append(24.0 if error <= max(4 * own, FINE * U32) else -math.log2(error))

    def _coarse(self, seed: int, truths: list[Truth], result: Judgement) -> None:
        """Find what TF32 operands would do in a model with products inside, for the self-test and to count the candidate's
        bits."""
        if {truth.reference.dtype for truth in truths if isinstance(truth.reference, Tensor)} != {torch.float32}:
            return
        if not self.truth.products or self.truth.working > 2.0**-24 or truths[0].rows is not None:
            return
        if truths[0].exact is None:
            return  # it does not run in float64
        reply = self.reference.ask("coarse", bits=TF32_BITS, seed=seed)
        rough = reply.header.get("apart") or 0.0
        if not reply.header.get("products") or not rough:
            return
        caught = not judge(reply.value, truths).same
        if caught:
            self.comparison.made.append(("products of TF32 operands", reply.value, truths))
        else:
            self.session.note(
                "TF32 in the reference's products would move its output by less than rounding may: it would not be seen"
            )
        error, own = result.errors.normwise, result.reference.normwise
        if math.isfinite(error):
            self.bits.append(24.0 if error <= 4 * own else min(24.0, TF32_BITS + math.log2(rough / error)))

    def _integers(self) -> bool:
        """Whether the output holds integers: places, which the low bits of close numbers decide."""
        return any(isinstance(leaf, Tensor) and leaf.dtype in WIDEST for _, leaf in leaves(self.comparison.right))


def _is_same(result: Judgement | None) -> bool:
    return result is not None and result.same
