"""Which answers to NaN and Inf in the inputs are right: where these decide nothing, and where NaN may spread further."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..exchange.wire import leaves
from ..inputs.catalogue import Variation
from ..judging.bounds import Truth
from ..judging.judge import Judgement, judge
from ..judging.odd_values import further, odd_entries
from .prober import Prober

OTHERWISE = "NaN and Inf, which it answers otherwise than the reference, as it may"
FURTHER = "NaN and Inf, which make more of its output NaN than of the reference's"
# Of the entries that are finite in the reference's output, the least share that has to be finite in the candidate's too: of
# an output that is all NaN nothing would be seen.
STILL_FINITE = 1 / 16


class OddAnswers(Prober):
    """Probes that may put NaN and Inf into the inputs."""

    usual_odd = 0  # numbers of the script's own inputs that are NaN or infinite

    def free_answers(
        self, truths: list[Truth], seed: int
    ) -> tuple[dict[str, tuple[Tensor, Tensor]], bool, list[list[Any]]]:
        """Return Truth.free of each tensor, Truth.compares, and whole outputs that are right too.

        The first two, which the truths get too, say where NaN and Inf of the inputs decide nothing, and whether the model
        does nothing for NaN. The whole outputs are those of a kernel that skips zeros, for which 0 times NaN is 0, and of
        one that leaves x + (y - x) out.
        """
        reply = self.reference.ask("free", seed=seed)
        if reply.header.get("short"):
            raise torch.OutOfMemoryError("there is no memory to find out what NaN and Inf decide")
        value, found, compares = reply.value, reply.value["free"], bool(reply.header.get("compares"))
        free = {truth.path: (one[0], one[1]) for truth, one in zip(truths, found, strict=False) if one is not None}
        for truth in truths:
            truth.free, truth.compares = free.get(truth.path), compares
        return free, compares, [[leaf for _, leaf in leaves(one)] for one in value["others"]]

    def other_answers(
        self, truths: list[Truth], answers: list[list[Any]], got: Any
    ) -> tuple[Judgement, list[Truth] | None]:
        """Return the judgement of an output by what `free_answers` found, and the truths of one of the whole `answers` if
        the output is that one. Where it is right to answer otherwise than the reference, the verdict's line says that the
        candidate does."""
        found, taken = judge(got, truths), None
        for answer in answers if not found.same else ():
            others = [t.other(reference=o, exact=None, free=None) for t, o in zip(truths, answer, strict=True)]
            if (other := judge(got, others)).same:
                found, taken = other, others
                break
        if found.same and OTHERWISE not in self.report.left_out:
            self.report.left_out.append(OTHERWISE)
        return found, taken

    def spread_further(
        self, found: Judgement, variation: Variation, truths: list[Truth], got: Any
    ) -> tuple[Judgement, dict[str, Tensor]]:
        """Return the judgement of an output that was `found` wrong for NaN and Inf, and which entries it makes NaN, by path.

        The output is not wrong if it only has NaN in more entries than the reference's, as it has behind tiles, transforms,
        products with triangles, and products in another order. The verdict's line then says so.

        What one odd number makes of one entry has not spread: multiplying by a mask, in place of a choice, is wrong. In a
        model without products, recurrences (products over steps) and interpolations, only NaN that spreads over finite
        numbers counts: sums in another order make no NaN of an Inf, unlike compensated ones.
        """
        parts = [
            further(one, truth.reference)
            for (_, one), truth in zip(leaves(got), truths, strict=False)
            if isinstance(one, Tensor) and isinstance(truth.reference, Tensor)
        ]
        of_infinite, of_finite, still = (sum(part[i] for part in parts) for i in range(3))
        of_infinite = of_infinite if self.truth.products or self.truth.regroups else 0
        put = self.odd_inputs() - self.usual_odd
        # If all entries that it makes NaN are infinite in the reference, it has not multiplied by a mask.
        spread = of_finite + of_infinite > put or (of_infinite > 0 and not of_finite)
        if not spread or still < STILL_FINITE * (still + of_finite):
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

    def odd_inputs(self) -> int:
        """How many numbers of the inputs are NaN or infinite."""
        return sum(odd_entries(t) for _, t in leaves(self.comparison.inputs) if isinstance(t, Tensor))

    def infinite(self) -> bool:
        """Whether the reference's output is infinite anywhere."""
        found = [t for _, t in leaves(self.comparison.right) if isinstance(t, Tensor) and t.is_floating_point()]
        return any(bool(t.isinf().any()) for t in found)
