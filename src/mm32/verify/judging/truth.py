"""What an output should be: float64 results and gauges from the reference's process, in the form that `judge` needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mm32 import activations

from ..exchange.wire import leaves
from ..inputs.probes import FEW, SMOOTH, Probe
from ..processes.channel import Failure
from ..processes.process import WorkerProcess
from .bounds import LONGEST_SUM, ROUNDOFF, Errors, Truth
from .exact import RoundingRaises

# The least componentwise noise on data whose sums have few terms. Three times that are allowed; Winograd's tiles of 2 x 2 came
# to 18.
WORST = 16.0


class TruthSource:
    """Asks the reference's process for the truth, and reports what the truth lacks by `note`.

    `contraction`: describes the product that the reference is; None if it is none. `k`: the length of its sums.
    """

    def __init__(self, reference: WorkerProcess, note: Callable[[str], None]):
        self.reference = reference
        self.note = note
        self.contraction: dict[str, Any] | None = None
        self.k = 1
        self.products = 1  # how many products the model has
        # Whether the model multiplies step by step, or interpolates: grouping its operations otherwise may make NaN of an Inf.
        self.regroups = False
        self.decays = False  # whether the model multiplies by exponentials step by step
        self.additions = math.inf  # how many additions round in the longest sums of the last truth asked for with `few`
        self.working = 0.0  # the coarsest unit roundoff that the reference computes in
        self.working_of: list[float] = []  # the same on the way to each of its outputs
        self.picks: list[bool] = []  # whether a place that is picked among entries is on the way to each of its outputs
        # Whether the model uses vectors whose signs are the library's choice: of eigenvalues, of singular values, of QR.
        self.vectors = False
        self.raises = False  # whether rounding alone makes the reference raise, by the last truth that was asked for
        self.state: dict[str, float] = {}  # norms by which rounding moves the buffers that the last call changed

    @property
    def smooth(self) -> bool:
        """Whether the contraction ends in an activation whose rounding adds to the error."""
        name = self.contraction["activation"] if self.contraction is not None else None
        return name is not None and activations.named(name).smooth

    def examine(self, seed: int) -> dict[str, Any]:
        """Find out, after its first forward, what the reference computes.

        Returns "contraction" or "why_not", "draws", "buffers" and "hidden".
        """
        header = self.reference.ask("examine", seed=seed).header
        self.contraction = header.get("contraction")
        self.working = header.get("working", 0.0)
        self.working_of, self.picks = list(header.get("working_of", [])), list(header.get("picks", []))
        self.k = self.contraction["k"] if self.contraction else 1
        self.vectors = bool(header.get("vectors"))
        return header

    def may_pick(self, output: int) -> bool:
        """Return whether this one of the reference's outputs may depend on a place that is picked among entries."""
        return self.picks[output] if output < len(self.picks) else any(self.picks)

    def of(self, seed: int, right: Any, few: bool = False, noise: bool = True, again: int = 0) -> list[Truth]:
        """Return the truth of each tensor of `right`, the reference's output for the inputs that it has now.

        `few`: for data whose sums have few terms; bounds come from the additions that round (`additions`), not from the lengths
        of sums. Without `noise` the float64 run is not perturbed, so bounds have no room for what a perturbed run would allow.
        `again`: the number of a further perturbed run.
        """
        found = self._in_float64(seed, right, few, noise, again)
        exact = found.get("exact", [])
        rows, loose = found.get("rows"), found.get("loose")
        self.additions = float(found["additions"]) if found and few else math.inf
        self.state = found.get("state", {})
        if self.contraction is None and found and not few:
            self.k = max(1, sum(min(int(length), LONGEST_SUM) for length in found["lengths"]))
            self.products = int(found["products"])
            self.regroups, self.decays = bool(found["regroups"]), bool(found["decays"])
        truths, given = [], leaves(right)
        coarse = self.working_of if len(self.working_of) == len(given) else [self.working] * len(given)
        for i, (path, leaf) in enumerate(given):
            truth = Truth(
                path, leaf, exact[i] if exact else None, None, 1 if few else self.k, working=coarse[i], rows=rows
            )
            truth.extreme = few
            if exact and found["noise"] and isinstance(leaf, (Tensor, float)):
                truth.noise = Errors(*found["noise"][i])
                if few:
                    truth.noise.componentwise = max(truth.noise.componentwise, WORST)
                truth.unordered = bool(found["unordered"])
                truth.loose = loose[i] if loose else None
                truth.flips, truth.step = int(found["flips"][i]), int(found["steps"][i])
                truth.entries = [] if few else list(found["entries"][i])
                if not few:
                    truth.sizes = list(found["sizes"][i])
                    truth.moved = {int(axis): norms for axis, norms in found["columns"][i].items()}
            truths.append(truth)
        if self.contraction is not None:
            gauge = self.reference.ask("gauge").value.to(truths[0].reference.device)
            if self.smooth:
                gauge = gauge.double() + torch.nan_to_num(truths[0].reference.double().abs(), nan=0.0, posinf=0.0)
            truths[0].gauge = gauge
        return truths

    def _in_float64(self, seed: int, right: Any, few: bool, noise: bool, again: int) -> dict[str, Any]:
        """Return the float64 result and what its run showed; empty, with a note, if there is no result that can be compared."""
        self.raises = False
        try:
            reply = self.reference.ask("truth", seed=seed, few=few, noise=noise, again=again)
        except Failure as failure:
            if failure.kind != "raised":
                raise
            self.raises = failure.message.startswith(RoundingRaises.__name__)
            why = "rounding alone makes it raise in double" if self.raises else "the reference does not run in double"
            self.note(
                f"no float64 truth ({why}: {failure.message[:120]}): its own result stands in, with bounds twice as wide"
            )
            return {}
        exact = [leaf for _, leaf in leaves(reply.value["exact"])]
        rows = reply.value["rows"]
        found = [leaf for _, leaf in leaves(right)]
        if rows is not None:
            total = next(leaf.shape[0] for leaf in found if isinstance(leaf, Tensor))
            found = [leaf[rows] if isinstance(leaf, Tensor) else leaf for leaf in found]
            self.note(
                f"the float64 truth is of {len(rows)} of the batch's {total} entries, which do not depend on each "
                f"other (compared); "
                "the others are held to the reference's own result"
            )
        if [_kind(leaf) for leaf in exact] != [_kind(leaf) for leaf in found]:
            self.note("no float64 truth: in double the reference returns other shapes; its own result stands in")
            return {}
        return {**reply.header, "exact": exact, "rows": rows, "loose": reply.value["loose"]}

    def in_order(self, seed: int, way: int) -> list[Any] | None:
        """Return the leaves of the reference's output for the inputs that it has now, with sums made in order (in_order.py); None
        where the reference cannot tell."""
        try:
            value = self.reference.ask("in_order", seed=seed, way=way).value
        except Failure as failure:
            if failure.kind != "raised":
                raise
            return None
        return None if value is None else [leaf for _, leaf in leaves(value)]

    def of_probe(self, probe: Probe, seed: int, right: Any) -> list[Truth]:
        """Return the same as `of` for the data of a probe, by the rule that the probe is judged by."""
        if probe.judged == "rule":
            return self.of(seed, right)
        ((path, reference),) = leaves(right)
        if probe.judged == "bitwise":
            return [Truth(path, reference, bitwise=True)]
        if probe.judged == "relative":
            u = ROUNDOFF[reference.dtype]
            relative, floor = (SMOOTH * u, 1.0) if self.smooth else (FEW * u, 0.0)
            return [Truth(path, reference, relative=relative, floor=floor)]
        return [Truth(path, reference, k=self.k, working=self.working)]


def _kind(value: Any) -> Any:
    """Return what a float64 result must have in common with the reference's own: shape and kind of dtype, or type."""
    if not isinstance(value, Tensor):
        return type(value)
    kind = "floating point" if value.is_floating_point() else "complex" if value.is_complex() else value.dtype
    return tuple(value.shape), kind
