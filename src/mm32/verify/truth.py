"""What an output of the reference should be: float64 results and gauges from the reference's process, as `judge` needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mm32 import activations

from .channel import Failure
from .judge import ROUNDOFF, Truth
from .probes import FEW, SMOOTH, Probe
from .process import WorkerProcess
from .wire import leaves


class TruthSource:
    """Asks the reference's process for the truth. Notes what the truth lacks, for the report, by `note`.

    `contraction` describes the product that the reference is, None if it is none; `k` is the length of its sums.
    """

    def __init__(self, reference: WorkerProcess, note: Callable[[str], None]):
        self.reference = reference
        self.note = note
        self.contraction: dict[str, Any] | None = None
        self.k = 1

    @property
    def smooth(self) -> bool:
        """Whether the contraction ends in an activation whose rounding adds to the error."""
        name = self.contraction["activation"] if self.contraction is not None else None
        return name is not None and activations.named(name).smooth

    def examine(self) -> str | None:
        """Find out what the reference computes, after its first forward. Why it is no contraction; None if it is one."""
        header = self.reference.ask("examine").header
        self.contraction = header.get("contraction")
        self.k = self.contraction["k"] if self.contraction else max(1, sum(header.get("lengths", [])))
        return header.get("why_not")

    def of(self, seed: int, right: Any) -> list[Truth]:
        """The truth of each tensor of `right`, the reference's output for the inputs that it has now."""
        exact = self._in_float64(seed, right)
        truths = []
        for i, (path, leaf) in enumerate(leaves(right)):
            truth = exact[i] if exact else None
            if isinstance(truth, Tensor) and truth.is_floating_point() and truth.dtype != torch.float64:
                self.note(f"the reference casts to {truth.dtype} by itself: its float64 run is only in part in double")
            truths.append(Truth(path, leaf, truth, None, self.k))
        if self.contraction is not None:
            gauge = self.reference.ask("gauge").value
            if self.smooth and isinstance(truths[0].exact, Tensor):
                gauge = gauge + torch.nan_to_num(truths[0].exact.double().abs(), nan=0.0, posinf=0.0)
            truths[0].gauge = gauge
        return truths

    def _in_float64(self, seed: int, right: Any) -> list[Any]:
        """The tensors of the float64 result; none, with a note, where there is no result that can be compared."""
        try:
            exact = [leaf for _, leaf in leaves(self.reference.ask("truth", seed=seed).value)]
        except Failure as failure:
            if failure.kind != "raised":
                raise
            self.note(
                f"no float64 truth (the reference does not run in double: {failure.message[:120]}): "
                "its own result stands in, with bounds twice as wide"
            )
            return []
        found = [leaf for _, leaf in leaves(right)]
        if [_kind(leaf) for leaf in exact] != [_kind(leaf) for leaf in found]:
            self.note("no float64 truth: in double the reference returns other shapes; its own result stands in")
            return []
        return exact

    def of_probe(self, probe: Probe, seed: int, right: Any) -> list[Truth]:
        """As `of`, for the data of a probe, by the rule that the probe is judged by."""
        if probe.judged == "rule":
            return self.of(seed, right)
        ((path, reference),) = leaves(right)
        if probe.judged == "bitwise":
            return [Truth(path, reference, bitwise=True)]
        if probe.judged == "relative":
            u = ROUNDOFF[reference.dtype]
            relative, floor = (SMOOTH * u, 1.0) if self.smooth else (FEW * u, 0.0)
            return [Truth(path, reference, relative=relative, floor=floor)]
        return [Truth(path, reference, k=self.k)]


def _kind(value: Any) -> Any:
    """What a float64 result has in common with the reference's own, precision aside: shape and dtype, or type."""
    if not isinstance(value, Tensor):
        return type(value)
    return tuple(value.shape), "floating point" if value.is_floating_point() else value.dtype
