"""Bounds made wider by further float64 runs that rounding perturbs, where an output is beyond them, but not far."""

from __future__ import annotations

from typing import Any

import torch

from .bounds import Truth
from .judge import Judgement, judge
from .truth import TruthSource

AGAIN, FAR_BEYOND = 4, 4.0  # further perturbed runs, where an error is at most so many times its bound
# Of an output's size: where rounding alone moves it by more, as in a filter that diverges, another order of the same products
# may be anything.
UNSTEADY = 2.0**-10


def perturbed_again(
    source: TruthSource, found: Judgement, truths: list[Truth], got: Any, right: Any, seed: int
) -> Judgement:
    """Of an output that was `found` beyond the bounds, but not far: by what further perturbed runs allow. In one, that few
    entries decide the error of the whole, such as those of a softmax of two equal scores, may not show. `right`: the
    reference's output, for the inputs that it has now."""
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
    """Bounds by the larger of what rounding does in either run."""
    for truth, other in zip(truths, others, strict=True):
        if truth.noise is not None and other.noise is not None:
            truth.noise.normwise = max(truth.noise.normwise, other.noise.normwise)
            truth.noise.componentwise = max(truth.noise.componentwise, other.noise.componentwise)
            truth.unordered |= other.unordered
            if other.loose is not None:
                truth.loose = other.loose if truth.loose is None else torch.maximum(truth.loose, other.loose)
            truth.forget()


def unsteady(truths: list[Truth]) -> bool:
    """Whether a perturbed run is so far from the float64 one that rounding decides much of what the output is."""
    return any(t.noise is not None and not (t.noise.normwise <= UNSTEADY) for t in truths)
