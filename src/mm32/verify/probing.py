"""Probes: the candidate on data that the script does not make, which show errors that its own data hide.

A product with an epilogue gets data made for its operands (probes.py); any other model gets its own data, changed
(variations.py). `Probing` decides which of them run, has each compared, and reports it.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import rows, strides
from .exchange import handover
from .exchange.wire import bytes_of, leaves
from .inputs.catalogue import MILDER, NO_PARAMETERS, VARIATIONS, Variation
from .inputs.contents import WIDEST
from .inputs.isolating import FEW, ISOLATING
from .inputs.probes import PROBES, REORDERED, Probe, skip_reason
from .inputs.states import not_given
from .judging.bounds import U32, Truth
from .judging.formats import shared
from .judging.judge import Judgement, judge
from .judging.likeness import FINE, ORDERED
from .judging.odd_values import INF_HINT, SPREAD_HINT, further, odd_entries
from .judging.widened import disturbed_again, unsteady, widen
from .processes.channel import Failure
from .report import judgement_record
from .text import one_line
from .verdict import OWN_BITS

if TYPE_CHECKING:
    from .compare import Comparison

ODD_RAISED = "NaN and Inf, on which it raises"
FURTHER = "NaN and Inf, of which it makes NaN in more of its output than the reference"
# The least part of what the reference has finite that is finite then: of an output that is all NaN nothing would be seen.
STILL_FINITE = 1 / 16
RAISES = "the candidate raises on it"
LATE = "left out for time"
DECIDES = "rounding decides the reference's own answer there"
UNSET = "the candidate's parameters cannot be set"
NOT_FINITE = "the reference's own answer is not finite there"
MANY_TERMS = "sums have many terms there even so"
NO_MEMORY = "the card has no memory left to judge it"
DISTURBED = 3  # probes that needed a disturbed float64 run, after which the others get one at once
# Of extreme data: how many times what the disturbed run moves an output by counts, and how much of it at least. The power of two
# of x log2(e), which is honest, is off by several roundings of x, which are thousands.
MORE, GROSS = 4.0, 2.0**-9
ELSEWHERE = 4  # times that NaN and Infs are put elsewhere
MOST_UNJUDGED = 2  # probes that may be left out for that
# Entries of an output whose bound is found anew where sums of equal terms may explain an error.
MOST_EQUAL = {"cpu": 1 << 24, "cuda": 1 << 26}
ODD_BYTES = 128 << 20  # of inputs of probes that are kept for timed windows
LARGEST_ODD = 512 << 20  # up to which one probe's are kept
TF32_BITS = 11
FULL_BITS = 22.0  # of an arithmetic, above which it is no matter that no data show more
ADDITIONS = 16.0  # that round, in data whose sums should have few terms: above it the probe would show nothing
# Variations that come before these data: what comes last is left out first where time is short. Those of parameters come one
# after another, since the candidate is made anew with each.
FIRST = 6
SLOW_TRIAL = 1.5  # seconds of a trial with its judging, above which these data come last
DRAWS = 2  # of impulses where the output has few entries: one may be right by chance

LARGER = {v.name for v in (*VARIATIONS, *MILDER.values()) if v.larger}
# Where logarithms of decays add up to hundreds and thousands, exponentials of differences of their sums are off by as many u.
FAR_DECAYS = {"times 100": GROSS, "graded": GROSS, "steady": GROSS, "planted": 2.0**-15}
FAR_DECAYS |= {v.name: GROSS for v in (*VARIATIONS, *MILDER.values()) if v.rare}
# Where few entries are 100000 times as large as the others, a sum in order is less accurate beside them than the reference's sum.
ROUGH = {"rare large rows": 2.0**-17}
# Parameters with which the reference itself may lose most of its bits.
ENLARGED = {"large parameters", "parameters times 4", "parameters times 2"}
FINE_PROBES = {v.name for v in ISOLATING}
LACKS = "the candidate has no such tensors"


@dataclass
class Odd:
    """Data of a probe that the candidate has passed, and what makes the truths of its outputs of (seed, output); of any model but
    a product by noise=False without a disturbed run."""

    name: str
    inputs: Any
    truths: Callable[..., list[Truth]]


class Probing:
    """The probes of one comparison, after its trials found nothing.

    Both processes are asked, and outputs judged, through the methods that `comparison` has for trials and probes. They leave
    the inputs and the output that they are about in its `inputs`, `varied` and `right`. What its self-test needs goes into its
    `cases` and `made`; results go into its report.
    """

    def __init__(self, comparison: Comparison):
        self.comparison = comparison
        self.session = comparison.session
        self.report = comparison.report
        self.reference = comparison.reference
        self.truth = comparison.truth
        self.odd: list[Odd] = []  # data of probes that were passed, for timed windows
        # What makes the truths of the last variation's data, if they were passed, and these data.
        self.passed_data: tuple[Callable[..., list[Truth]], Any] | None = None
        self.altered = False  # the candidate has other parameters than the reference's own
        self.waited = 0.0  # seconds, for other verifications
        self.passed = 0  # probes that were passed, of whose data as many are kept as there is room for
        self.passed_large = 0  # the same of larger data, of which one is kept
        self.disturbed = 0  # probes for which a disturbed run was needed
        self.usual_odd = 0  # numbers of the script's own inputs that are NaN or infinite
        self.seen: list[float] = []  # bits that the candidate's arithmetic carries, by each kind of data that shows it

    def run(self) -> Judgement:
        """All probes of this model. The first that fails decides; the others are reported as well. Raises Stop and Failure."""
        begin = time.monotonic()
        if self.truth.contraction is not None:
            worst = self._product_probes(begin)
        else:
            worst = self._variations(begin)
        others = []
        if not self.report.problem["draws"]:  # which entry gets which number may depend on the order in memory
            others.append(("other strides", strides.ASKS, strides.run))
        if self.report.problem["draws"] or self.report.problem["changes"]:
            others.append(("in a row", rows.ASKS, rows.run))
        for name, asks, one in others:
            said = self._apart(name, asks, one, begin)
            if said and worst.same:
                worst = Judgement(False, f"probe {name!r}: {said}")
        if any(p.get("reason") == UNSET for p in self.report.probes):
            self.report.left_out.append("other parameters, since the candidate's are not the reference's")
        late = [p["name"] for p in self.report.probes if p.get("reason") in (LATE, NO_MEMORY)]
        if late:
            self.report.left_out.append(f"{len(late)} of {len(self.report.probes)} probes")
        applied = [p for p in self.report.probes if p["status"] in ("same", "different")]
        skipped = [
            p for p in self.report.probes if p not in applied and p.get("reason") not in (LATE, NO_MEMORY, UNSET)
        ]
        if len(skipped) > len(applied):
            why = Counter(str(p.get("reason")) for p in skipped).most_common(1)[0]
            often = f" ({why[0]}: {why[1]})" if why[1] > 1 else ""
            self.report.left_out.append(
                f"{len(skipped)} of {len(self.report.probes)} probes, which do not suit its data{often}"
            )
        larger = [p for p in self.report.probes if p["name"] in LARGER]
        if larger and all(p.get("reason") == NOT_FINITE for p in larger) and len(skipped) <= len(applied):
            self.report.left_out.append("larger values, for which the reference's own answer is not finite")
        if self.seen:
            bits = min(self.seen)
            self.report.precision = {"bits": round(bits, 1), "of": 24}
            fine = any(p["name"] in FINE_PROBES for p in applied)
            own = min(self.comparison.likeness.own_bits, default=24.0)
            if self.comparison.likeness.own_bits:
                self.report.precision["own"] = round(own, 1)
            if own < OWN_BITS <= bits:
                self.report.left_out.append(
                    f"arithmetic of more than {max(0, math.floor(own))} bits on data like its own"
                )
            if bits < FULL_BITS and self.truth.contraction is None and not fine:
                self.report.left_out.append(
                    f"arithmetic of more than {max(0, round(bits))} bits, which none of its data show"
                )
        tied = any(p["name"] == "equal neighbours" for p in applied)
        unlike = [said if tied else said.replace("in order", "strictly in order") for said in self._unlike()]
        self.report.left_out += unlike + self._labels()
        return worst

    def _unlike(self) -> list[str]:
        """What no input has been, and what of the model was left as it is, in words."""
        return self.comparison.seen.unlike(self.comparison.inputs) + list(dict.fromkeys(self.comparison.unvaried))

    def _labels(self) -> list[str]:
        """Labels that a loss leaves out, in words: no candidate is given them, for one that looks them up may end its process."""
        whole = any(isinstance(t, Tensor) and t.dtype in WIDEST for _, t in leaves(self.comparison.inputs))
        return [
            f"labels of {label}, which its loss leaves out" for label in self.report.problem.get("ignored", ()) if whole
        ]

    def _product_probes(self, begin: float) -> Judgement:
        """Probes of a product with an epilogue: data made for its operands."""
        comparison = self.comparison
        contraction = self.truth.contraction
        assert contraction is not None
        worst = Judgement()
        with_state = any(str(contraction[name]).startswith("parameter") for name in ("a", "b", "bias"))
        comparison.own_inputs(self.session.seed)  # which the first probe changes in places
        first = [REORDERED] if comparison.likeness.first_error is not None else []
        for number, probe in enumerate((*first, *PROBES), -len(first)):
            self._next(probe.name)
            record: dict[str, Any] = {"name": probe.name, "asks": probe.asks}
            self.report.probes.append(record)
            reason = LATE if self._late(begin) else None
            if reason is None and with_state and not comparison.copied:
                reason = UNSET
            data = None
            if reason is None:
                try:
                    data, reason = self._probe_data(probe, self.session.seed + 1000 + number)
                except torch.OutOfMemoryError:
                    self._without_memory(record)
                    continue
            if reason is not None:
                record |= {"status": "skipped", "reason": reason}
                continue
            assert data is not None
            if with_state:
                comparison.build_candidate({"init": comparison.build["init"], "state": data["state"]})
            comparison.give(data["inputs"])
            result = self._judge_probe(probe, record)
            if result is None:
                continue
            record |= {"status": "same" if result.same else "different", **judgement_record(result)}
            if not result.same and worst.same:
                worst = Judgement(False, f"probe {probe.name!r}: {result.reason}")
            if result.same and not with_state:
                comparison.inputs = data["inputs"]
                self._keep_odd(probe.name, partial(self.truth.of_probe, probe), data["inputs"])
        if with_state:
            self.reference.ask("build", comparison.build, seed=self.session.seed)
            comparison.build_candidate(comparison.build)
        return worst

    def _probe_data(self, probe: Probe, seed: int) -> tuple[Any, str | None]:
        """A probe's inputs and parameters, which the reference then has; or None, and why the probe is skipped."""
        assert self.truth.contraction is not None
        float32 = {leaf.dtype for _, leaf in leaves(self.comparison.right)} == {torch.float32}
        reason = skip_reason(probe, self.truth.contraction["activation"], float32)
        if reason is not None:
            return None, reason
        reply = self.reference.ask("probe", name=probe.name, seed=seed)
        if reply.header.get("short"):
            raise torch.OutOfMemoryError(str(reply.header["why_not"]))
        return reply.value, reply.header.get("why_not")

    def _judge_probe(self, probe: Probe, record: dict[str, Any]) -> Judgement | None:
        seed = self.session.seed
        right = self.reference.ask("forward", seed=seed).value
        truths = self.truth.of_probe(probe, seed, right)
        if probe.name == "randn":
            self.comparison.spoil(truths, right)
        got, raised = self._output(seed, probe.judged == "places")
        if raised:
            record |= {"status": "skipped", "reason": raised}
            return None
        result = self.comparison.judge_output(got, truths, f"probe {probe.name}")
        if probe is REORDERED and result.same:
            result = self._whatever_the_order(got, truths[0], result)
        if probe.judged == "relative" and result.measured and math.isfinite(result.errors.normwise):
            largest = result.errors.normwise
            self.seen.append(min(24.0, -math.log2(largest)) if largest > 0 else 24.0)
        return result

    def _whatever_the_order(self, got: Tensor, truth: Truth, result: Judgement) -> Judgement:
        """`result`, unless much of the error is what it was before the terms of the sums changed their places: what depends on
        the order of sums is another then, what rounding operands to fewer bits makes is the same."""
        before, exact = self.comparison.likeness.first_error, truth.exact
        self.comparison.likeness.first_error = None
        if before is None or not isinstance(exact, Tensor) or truth.rows is not None:
            return result
        same = shared(got, exact, exact + before) * result.errors.normwise
        if not (same > ORDERED * U32):
            return result
        result.same = False
        result.reason = (
            f"{truth.path}: an error of {same:.3g} of its size stays the same where the terms of "
            "its sums come in another order: it comes from operands or products of fewer bits, not from sums in fp32"
        )
        return result

    def _variations(self, begin: float) -> Judgement:
        """Probes for any model: its own data, changed."""
        comparison = self.comparison
        worst = Judgement()
        own = comparison.inputs = comparison.own_inputs(self.session.seed)
        comparison.keep_inputs()
        self.usual_odd = self._odd_inputs()
        draws = DRAWS if self._entries() <= FEW else 1
        few = [v for v in ISOLATING for _ in range(draws if v.name == "impulses" else 1)]
        # Of those, a float64 run takes several times as long: where it takes long as it is, all others come before.
        first = FIRST if comparison.trial_seconds <= SLOW_TRIAL else len(VARIATIONS)
        kinds = [*VARIATIONS[:first], *few, *VARIATIONS[first:]]
        for number, variation in enumerate(kinds):
            self._next(variation.name)
            if (variation.few and self._entries() > FEW) or self._again_in_vain(variation):
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

    def _probe_again(self, variation: Variation, seed: int, own: Any, begin: float) -> tuple[Judgement | None, bool]:
        """As `_probe`. Where the candidate makes NaN of what is Inf or finite in the reference, they are put elsewhere, some
        times at most: a gate of 0, or two Infs that meet, make NaN by chance, and so may nothing be left that is finite; a split
        product without a guard makes it always. An answer to Infs that leave none in the reference's takes nothing
        back, and no exception does."""
        before = self.report.wrong, self.report.picture
        failed: tuple[Judgement, dict[str, Any], tuple[Any, Any]] | None = None
        for again in range(ELSEWHERE + 1):
            last = again == ELSEWHERE
            result, milder = self._probe(variation, seed + 100 * again, own, begin, last)
            if failed is not None:
                raised = result is None and str(self.report.probes[-1].get("reason", "")).startswith(RAISES)
                says_nothing = INF_HINT in failed[0].reason and _is_same(result) and not self._infinite()
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
            self._keep_odd(variation.name, *self.passed_data)
        self.passed_data = None
        return result, milder

    def _infinite(self) -> bool:
        """Whether the reference's output is infinite anywhere."""
        found = [t for _, t in leaves(self.comparison.right) if isinstance(t, Tensor) and t.is_floating_point()]
        return any(bool(t.isinf().any()) for t in found)

    def _probe(
        self, variation: Variation, seed: int, own: Any, begin: float, last: bool
    ) -> tuple[Judgement | None, bool]:
        """One variation of the `own` inputs: what comes of it, None if it is left out; and whether a milder one may do.
        `last`: Infs are not put elsewhere any more."""
        comparison = self.comparison
        self.passed_data = None
        record: dict[str, Any] = {"name": variation.name, "asks": variation.asks}
        self.report.probes.append(record)
        reason = LATE if self._late(begin) else None
        if reason is None and variation.state and not comparison.copied:
            reason = UNSET
        if reason is not None:
            record |= {"status": "skipped", "reason": reason}
            return None, False
        comparison.inputs = own
        try:
            reason = comparison.vary(variation.name, seed)
        except torch.OutOfMemoryError:
            self._without_memory(record)
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
            self._without_memory(record)
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
                first = disturbed_again(self.truth, first, truths, got, comparison.right, seed)
            if not first.same and variation.odd:
                free, compares, answers = self._free(truths, seed)
                first = judge(got, truths)
                for answer in answers if not first.same else ():
                    others = [t.other(reference=o, exact=None, free=None) for t, o in zip(truths, answer, strict=True)]
                    other = judge(got, others)
                    if other.same:
                        first, truths, instead = other, others, True
                        break
            equal = not first.same and variation.equal and self._entries() <= MOST_EQUAL[self.session.device]
            if equal:
                self._allow_equal(truths, seed, comparison.right)
                first = judge(got, truths)
            if not first.same and variation.further and (last or INF_HINT not in first.reason):
                first, spread = self._spread_further(first, variation, truths, got)
            if not first.same and variation.name in ENLARGED and unsteady(truths):
                record |= {"status": "skipped", "reason": DECIDES}
                return None
            result = comparison.judge_output(got, truths, f"probe {variation.name}", first)
        if result is None:
            self._without_memory(record)
            return None
        record |= {"status": "same" if result.same else "different", **judgement_record(result)}
        comparison.seen.note(comparison.inputs)
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
        """The truths of a variation's output, the candidate's output, and what these truths say of it; or why the probe is left
        out.

        Disturbing the float64 run takes as long as the run itself. So it is asked for only where the rule's own bounds, without
        what it would allow, are too narrow for the reference or for the candidate: where both are within them, it says nothing
        more. After some candidates' outputs for which it was needed it is asked for at once."""
        comparison = self.comparison
        quick = not variation.isolating and self.disturbed < DISTURBED
        truths = self._truths(variation, seed, comparison.right, {}, noise=not quick)
        far = variation.name == "peaks" and self.truth.decays
        if variation.isolating and (far or not (self.truth.additions <= ADDITIONS)):
            return MANY_TERMS
        got = None
        if quick and judge(comparison.right, truths).same:
            comparison.give(comparison.inputs)
            got, raised = self._output(seed, variation.odd)
            if raised:
                return raised
            if (found := judge(got, truths)).same:
                return truths, got, found
        if quick:
            self.disturbed += 1
            truths = self._truths(variation, seed, comparison.right, {})
        if comparison.own_error(truths):
            return DECIDES
        if got is None:
            comparison.give(comparison.inputs)
            got, raised = self._output(seed, variation.odd)
            if raised:
                return raised
        return truths, got, judge(got, truths)

    def _lacks(self, build: dict[str, Any]) -> bool:
        """Make the candidate anew with tensors for its plain attributes. Whether it lacks one of these."""
        lacks = self.comparison.candidate.ask("build", build, seed=self.session.seed).header.get("lacks")
        return not isinstance(lacks, list) or bool(lacks)

    def _free(self, truths: list[Truth], seed: int) -> tuple[dict[str, tuple[Tensor, Tensor]], bool, list[list[Any]]]:
        """Truth.free of each tensor, and Truth.compares, which the truths get too: where NaN and Inf of the inputs decide
        nothing, and whether the model does nothing for NaN. And whole outputs that are right too: of a kernel that skips zeros,
        for which 0 times NaN is 0, and of one that leaves x + (y - x) out."""
        reply = self.reference.ask("free", seed=seed)
        if reply.header.get("short"):
            raise torch.OutOfMemoryError("there is no memory to find out what NaN and Inf decide")
        value, found, compares = reply.value, reply.value["free"], bool(reply.header.get("compares"))
        free = {truth.path: (one[0], one[1]) for truth, one in zip(truths, found, strict=False) if one is not None}
        for truth in truths:
            truth.free, truth.compares = free.get(truth.path), compares
        return free, compares, [[leaf for _, leaf in leaves(one)] for one in value["others"]]

    def _spread_further(
        self, found: Judgement, variation: Variation, truths: list[Truth], got: Any
    ) -> tuple[Judgement, dict[str, Tensor]]:
        """Of an output that was `found` wrong for NaN and Inf: whether all that is wrong is that NaN stands in more of it than of
        the reference's, as it does behind tiles, transforms, products with triangles, and products in another order. That is
        said on the verdict's line, and is no wrong answer; the judgement then, and which entries it makes NaN, by path.

        What one odd number makes of one entry has not spread: a mask that is multiplied by, in place of a choice, is wrong. In a
        model without products only what spreads over finite numbers counts: sums in another order make no NaN of an Inf, as
        compensated ones do."""
        parts = [
            further(one, truth.reference)
            for (_, one), truth in zip(leaves(got), truths, strict=False)
            if isinstance(one, Tensor) and isinstance(truth.reference, Tensor)
        ]
        of_infinite, of_finite, still = (sum(part[i] for part in parts) for i in range(3))
        spread = of_finite + (of_infinite if self.truth.products else 0)
        if not spread > self._odd_inputs() - self.usual_odd or still < STILL_FINITE * (still + of_finite):
            return found, {}
        for truth, (_, one) in zip(truths, leaves(got), strict=False):
            truth.spread = one.isnan() if isinstance(one, Tensor) and isinstance(truth.reference, Tensor) else None
        if (result := judge(got, truths)).same:
            if FURTHER not in self.report.left_out:
                self.report.left_out.append(FURTHER)
            more = of_finite + of_infinite
            self.session.note(
                f"probe {variation.name!r}: {more} entries of its output are NaN where the reference's are not"
            )
            return result, {truth.path: truth.spread for truth in truths if truth.spread is not None}
        for truth in truths:
            truth.spread = None
        return found, {}

    def _odd_inputs(self) -> int:
        """How many numbers of the inputs are NaN or infinite."""
        return sum(odd_entries(t) for _, t in leaves(self.comparison.inputs) if isinstance(t, Tensor))

    def _output(self, seed: int, odd: bool) -> tuple[Any, str]:
        """The candidate's output; or that it raises, which on `odd` data, that hold NaN or Inf, is no wrong answer."""
        try:
            return self.comparison.output(seed), ""
        except Failure as failure:
            if not odd or failure.kind != "raised":
                raise
            if ODD_RAISED not in self.report.left_out:
                self.report.left_out.append(ODD_RAISED)
            return None, f"{RAISES}: {one_line(failure.message, 160)}"

    def _without_memory(self, record: dict[str, Any]) -> None:
        """Leave a probe out that there was no memory to judge: no process waits for an answer, so that the next one can be tried.
        But few: a candidate that fills the card could have all of them left out. Raises OutOfMemoryError."""
        record |= {"status": "skipped", "reason": NO_MEMORY}
        self.session.short = True
        if sum(probe.get("reason") == NO_MEMORY for probe in self.report.probes) > MOST_UNJUDGED:
            raise torch.OutOfMemoryError(f"{MOST_UNJUDGED + 1} probes could not be judged")
        if self.session.card is not None:
            handover.free(self.session.card)

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
        """The truths of the reference's output for a variation's data, with what more is right for these; `equal`: what sums of
        equal terms may be off, too; `spread`: Truth.spread of its tensors, by path."""
        truths = self.truth.of(seed, right, few=variation.isolating, noise=noise)
        for i, truth in enumerate(truths):
            # A sum of Inf and -Inf is NaN; by whoever adds up the weights before the product, which is the same but for
            # these, it is Inf, and behind an activation a number. Data that hold a NaN are another matter.
            truth.either = variation.name == "an Inf"
            truth.spreads, truth.spread = variation.spreads, spread.get(truth.path)
            truth.by_row = variation.rare
            gross = GROSS if variation.extreme else FAR_DECAYS.get(variation.name, 0.0) if self.truth.decays else 0.0
            gross = max(gross, ROUGH.get(variation.name, 0.0))
            truth.extreme |= variation.equal or gross > 0
            truth.steep = not variation.state and not gross
            if gross and truth.noise is not None:
                truth.noise.normwise = max(MORE * truth.noise.normwise, gross)
                truth.noise.componentwise = max(MORE * truth.noise.componentwise, gross / U32)
            truth.free, truth.compares = free.get(truth.path), compares
            integers = isinstance(truth.reference, Tensor) and truth.u == 0 and truth.reference.dtype != torch.bool
            if variation.ties and integers and (variation.odd or self.truth.may_pick(i)):
                truth.tied = None if variation.odd else truth.flips
                truth.flips = truth.reference.numel()  # the place of a NaN, or of one of several equal entries
        if equal and noise:
            self._allow_equal(truths, seed, right)
        return truths

    def _allow_equal(self, truths: list[Truth], seed: int, right: Any) -> None:
        """Widen bounds by what a sum of equal terms may be off: all are rounded the same way, so that errors do not average out.
        4096 equal losses, added up in order, are 750 u off."""
        widen(truths, self.truth.of(seed, right, few=True))

    def _count_bits(self, result: Judgement) -> None:
        """How many bits the candidate computes with, where the reference's own error is a few u: rounding counts for no more."""
        error, own = result.errors.normwise, result.reference.normwise
        if result.measured and own <= FINE * U32 and 0 <= error < math.inf:
            self.seen.append(24.0 if error <= max(4 * own, FINE * U32) else -math.log2(error))

    def _coarse(self, seed: int, truths: list[Truth], result: Judgement) -> None:
        """Of a model with products inside: what TF32 operands would do, for the self-test and to count the candidate's bits."""
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
            self.seen.append(24.0 if error <= 4 * own else min(24.0, TF32_BITS + math.log2(rough / error)))

    def _apart(
        self, name: str, asks: str, run: Callable[[Comparison], tuple[dict[str, Any], str] | None], begin: float
    ) -> str:
        """A probe that has a module of its own. What is wrong, empty if nothing."""
        self._next(name)
        record: dict[str, Any] = {"name": name, "asks": asks}
        self.report.probes.append(record)
        if self._late(begin):
            record |= {"status": "skipped", "reason": LATE}
            return ""
        found: tuple[dict[str, Any], str] | None = {}, ""
        done = False
        with suppress(torch.OutOfMemoryError):
            found = run(self.comparison)
            done = True
        if not done:
            self._without_memory(record)
            self.comparison.own_inputs(self.session.seed)
            return ""
        if found is None:
            self.report.probes.remove(record)
            return ""
        record |= found[0]
        return found[1]

    def _next(self, name: str) -> None:
        self.waited += self.session.let_others()
        self.session.at(f"probing: {name}")

    def _late(self, begin: float) -> bool:
        spent = time.monotonic() - begin - self.comparison.excess_seconds - self.waited
        return spent + self.comparison.trial_seconds / 2 > self.session.probe_budget

    def _keep_odd(self, name: str, truths: Callable[..., list[Truth]], inputs: Any) -> None:
        size = bytes_of(inputs)
        if any(one.name == name for one in self.odd):  # of data that were drawn twice
            name += ", again"
        if size <= ODD_BYTES:
            self.passed += 1
        if size * (len(self.odd) + 1) <= ODD_BYTES:
            self.odd.append(Odd(name, inputs, truths))
        elif size <= ODD_BYTES:  # as many as there is room for, of all that were passed, each with the same chance
            if (place := random.SystemRandom().randrange(self.passed)) < len(self.odd):
                self.odd[place] = Odd(name, inputs, truths)
        elif ODD_BYTES < size <= LARGEST_ODD:  # one of all, each with the same chance
            self.passed_large += 1
            if random.SystemRandom().randrange(self.passed_large) == 0:
                self.odd = [Odd(name, inputs, truths)]

    def _integers(self) -> bool:
        """Whether the output holds integers: places, which the low bits of close numbers decide."""
        return any(isinstance(leaf, Tensor) and leaf.dtype in WIDEST for _, leaf in leaves(self.comparison.right))

    def _entries(self) -> int:
        return sum(leaf.numel() if isinstance(leaf, Tensor) else 1 for _, leaf in leaves(self.comparison.right))


def _is_same(result: Judgement | None) -> bool:
    return result is not None and result.same
