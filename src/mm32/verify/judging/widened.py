"""Bounds made wider by further float64 runs, perturbed or with sums in order, for an output that is beyond them, but not far."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from . import sizes
from .bounds import ORDER_CAP, ORDER_FACTOR, U32, Errors, Truth, without, worse
from .in_order import WAYS
from .judge import OWN_COLUMN_FACTOR, Judgement, judge
from .truth import TruthSource

# The most further runs, and how many times its bound the normwise error may be for one to be made.
AGAIN, FAR_BEYOND = 4, 4.0
# If rounding alone moves an output by more than this part of its size, as in a filter that diverges, the same products in another
# order may give anything.
UNSTEADY = 2.0**-10
# The errors of entries of about one size are known as root mean squares, and those of a running sum near a zero are alike.
SIZE_FACTOR = 4.0
# Equal terms are all rounded alike, up or down or not at all as their last bits have it: the largest error of a few sums of them
# may be several times less than that of another.
EQUAL_TERMS = 2.0
ORDERED = 2.0**-10  # sums in order that are further off than this part of the result excuse nothing


def perturbed_again(
    source: TruthSource, found: Judgement, truths: list[Truth], got: Any, right: Any, seed: int, equal: bool = False
) -> Judgement:
    """Judge an output that was `found` beyond its bounds, but not far, again by what further perturbed runs allow.

    Where a few entries decide the error of the whole, such as those of a softmax of two equal scores, one perturbed run may not
    show how far rounding moves them. `right`: the reference's output for the inputs that it has now. `equal`: as of `in_order`.
    """
    for again in range(1, AGAIN + 1 if any(truth.noise is not None for truth in truths) else 1):
        near = found.measured and found.errors.normwise <= FAR_BEYOND * found.bounds.normwise
        if found.same or not near:
            break
        widen(truths, source.of(seed, right, again=again))
        found = judge(got, truths)
    return in_order(source, found, truths, got, seed, equal)


def in_order(
    source: TruthSource, found: Judgement, truths: list[Truth], got: Any, seed: int, equal: bool = False
) -> Judgement:
    """Judge an output that was `found` beyond its bounds, but not far, again by what plain sums make of the same data.

    An honest kernel may sum with one accumulator, and on data whose large terms come first that is further off than the length
    of the sum tells. `equal`: sums may have many equal terms.
    """
    if found.same or not _may_be_order(found, truths):
        return found
    for way in range(WAYS):
        made = source.in_order(seed, way)
        if made is None or len(made) != len(truths):
            if way == 0:
                return found
            continue  # a running sum has one order only, or memory or time was short
        for truth, leaf in zip(truths, made, strict=True):
            _note_order(truth, leaf, EQUAL_TERMS if equal else 1.0)
    again = judge(got, truths)
    if again.same:
        source.note(
            "an output is beyond the usual bounds, and no further off than plain sums in order (one fp32 accumulator each) make "
            "of the same data: the same"
        )
    return again


def _may_be_order(found: Judgement, truths: list[Truth]) -> bool:
    """Return whether sums in order may explain an error: one that is measured, and has a float64 truth."""
    near = found.measured and found.errors.normwise <= ORDER_CAP * found.bounds.normwise
    near = near and found.errors.componentwise <= ORDER_CAP * found.bounds.componentwise
    return near and not any(t.gross for t in truths) and any(map(_is_judged_by_bounds, truths))


def _is_judged_by_bounds(truth: Truth) -> bool:
    """Return whether an output of fp32 is judged by bounds, and has a float64 truth."""
    rule = truth.bitwise or truth.relative is not None or truth.picked
    return truth.u == U32 and isinstance(truth.exact, Tensor) and not rule


def _note_order(truth: Truth, leaf: Any, times: float) -> None:
    """Add to a truth how far off its output is with sums in order, `times` as far: as a whole, and by entries, sizes and
    columns."""
    exact = truth.exact
    if not _is_judged_by_bounds(truth) or not isinstance(leaf, Tensor) or exact.shape != leaf.shape:
        return
    leaf = leaf.to(exact.device)
    if truth.loose is not None and truth.rows is None:  # numbers near a tie may have gone to the other side
        leaf = without(leaf, exact, truth.loose)
    errors, *_ = truth.part().measure(leaf)
    if not (errors.normwise <= ORDERED and errors.componentwise * U32 <= ORDERED):
        return
    before = truth.ordered or Errors()
    truth.ordered = Errors(
        worse(before.normwise, times * errors.normwise), worse(before.componentwise, times * errors.componentwise)
    )
    apart = (times * (leaf - exact)).nan_to_num_(nan=math.inf, posinf=math.inf, neginf=-math.inf)
    if truth.entries:
        truth.entries = _wider(truth.entries, apart.abs().reshape(-1).tolist())
    if truth.sizes:
        truth.sizes = _wider(truth.sizes, [times * SIZE_FACTOR * error for error in sizes.relative(leaf, exact)])
    for axis, norms in truth.moved.items():
        truth.moved[axis] = _wider(norms, sizes.by_column(apart, axis).tolist())
    truth.forget()


def _wider(moved: list[float], ordered: list[float]) -> list[float]:
    """Return how far entries or columns move, with what sums in order add. The judge allows OWN_COLUMN_FACTOR times as much: of
    these sums' errors that is ORDER_FACTOR, and at most ORDER_CAP times what it was."""
    part = ORDER_FACTOR / OWN_COLUMN_FACTOR
    return [max(one, min(part * other, ORDER_CAP * one)) for one, other in zip(moved, ordered, strict=True)]


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
