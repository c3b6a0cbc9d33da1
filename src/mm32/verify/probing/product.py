"""Probes of a product with an epilogue: data made for its operands (inputs/probes.py)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..exchange.wire import leaves
from ..inputs.probes import PROBES, REORDERED, Probe, skip_reason
from ..judging.bounds import U32, Truth
from ..judging.formats import shared
from ..judging.judge import Judgement, judge
from ..judging.likeness import ORDERED
from ..judging.widened import in_order
from ..report import judgement_record
from .prober import LATE, ODD_RAISED, UNSET, Prober


class ProductProbes(Prober):
    """Probes of a product, alone or with an epilogue."""

    def run(self, begin: float) -> Judgement:
        comparison = self.comparison
        contraction = self.truth.contraction
        assert contraction is not None
        worst = Judgement()
        with_state = any(str(contraction[name]).startswith("parameter") for name in ("a", "b", "bias"))
        first = [REORDERED] if comparison.likeness.first_error is not None else []
        for number, probe in enumerate((*first, *PROBES), -len(first)):
            self.next(probe.name)
            record: dict[str, Any] = {"name": probe.name, "asks": probe.asks}
            self.report.probes.append(record)
            reason = LATE if self.late(begin) else None
            if reason is None and with_state and not comparison.copied:
                reason = UNSET
            data = None
            if reason is None:
                try:
                    if probe.own:
                        self._restore(with_state)
                    data, reason = self._probe_data(probe, self.session.seed + 1000 + number)
                except torch.OutOfMemoryError:
                    self.without_memory(record)
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
                self.passed.keep(probe.name, partial(self.truth.of_probe, probe), data["inputs"])
        if with_state:
            self.reference.ask("build", comparison.build, seed=self.session.seed)
            comparison.build_candidate(comparison.build)
        return worst

    def _restore(self, with_state: bool) -> None:
        """Give the reference the script's own data again, and its own parameters where probes change them."""
        if with_state:
            self.reference.ask("build", self.comparison.build, seed=self.session.seed)
        self.comparison.own_inputs(self.session.seed)

    def _probe_data(self, probe: Probe, seed: int) -> tuple[Any, str | None]:
        """Return a probe's inputs and parameters, which the reference then has; or None, and why the probe is skipped."""
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
        got, raised = self.output(seed, ODD_RAISED if probe.judged == "places" else "")
        if raised:
            record |= {"status": "skipped", "reason": raised}
            return None
        result = in_order(self.truth, judge(got, truths), truths, got, seed)
        result = self.comparison.judge_output(got, truths, f"probe {probe.name}", result)
        if probe is REORDERED and result.same:
            result = self._whatever_the_order(got, truths[0], result)
        if probe.judged == "relative" and result.measured and math.isfinite(result.errors.normwise):
            largest = result.errors.normwise
            self.bits.append(min(24.0, -math.log2(largest)) if largest > 0 else 24.0)
        return result

    def _whatever_the_order(self, got: Tensor, truth: Truth, result: Judgement) -> Judgement:
        """Return `result`, set to different if much of the error is what it was before the terms of the sums were reordered.
        Errors that depend on the order of sums change with it; errors of operands rounded to fewer bits stay the same."""
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
