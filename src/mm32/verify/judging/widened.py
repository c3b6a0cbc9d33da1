"""Bounds made wider by further perturbed float64 runs, for an output that is beyond them, but not far."""

from __future__ import annotations

from typing import Any

import torch

from .bounds import Truth
from .judge import Judgement, judge
from .truth import TruthSource

# The most further runs, and how many times its bound the normwise error may be for one to be made.
AGAIN, FAR_BEYOND = 4, 4.0
# If rounding alone moves an output by more than this part of its size, as in a filter that diverges, the same products in another
# order may give anything.
UNSTEADY = 2.0**-10


def perturbed_again(
    source: TruthSource, found: Judgement, truths: list[Truth], got: Any, right: Any, seed: int
) -> Judgement:
    """Judge an output that was `found` beyond its bounds, but not far, again by what further perturbed runs allow.

    Where a few entries decide the error of the whole, such as those of a softmax of two equal scores, one perturbed run may not
    show how far rounding moves them. `right`: the reference's output for the inputs that it has now.
    """
    if not any(truth.noise is not None for truth in truths):
        return found
    for again in range(1, AGAIN + 1):
        near = found.measured and found.errors.normwise <= FAR_BEYOND * found.bounds.normwise
        if found.same or not near:
            break
        widen(truths, source.of(seed, right, again=again))
        found = judge(got, truths)
    return found


def widen(truths: list[Truth], others: list[Truth]) -> None:
    """Widen the bounds of `truths` to the larger of what rounding does in either run."""
    for truth, other in zip(truths, others, strict=True):
        if truth.noise is not None and other.noise is not None:
            truth.noise.normwise = max(truth.noise.normwise, other.noise.normwise)
            truth.noise.componentwise = max(truth.noise.componentwise, other.noise.componentwise)
            truth.unordered |= other.unordered
            if other.loose is not None:
                truth.loose = other.loose if truth.loose is None else torch.maximum(truth.loose, other.loose)
            truth.forget()


def unsteady(truths: list[Truth]) -> bool:
    """Return whether a perturbed run is so far from the float64 run that rounding decides much of what the output is."""
    return any(t.noise is not None and not (t.noise.normwise <= UNSTEADY) for t in truths)
