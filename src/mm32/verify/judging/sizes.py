"""Errors of an output's entries by size, and by column, so that small entries are not judged by the bound of large ones.

A group holds the entries whose sizes lie between two powers of two. What rounding does to them, relative to their own size, shows
in the reference's fp32 result and in a perturbed float64 run (rounding.py): a probability of 1e-6 is right to as many bits as the
largest one, but a small difference of large numbers is not.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .bounds import ROUNDOFF, Truth, widened
from .pieces import over

FEW = 64  # for outputs of up to so many entries, one perturbed run is not enough to tell how far rounding leads
GROUPS = 24  # how many groups there are, one for each power of two from the largest entry down
# An axis has columns that are judged by themselves if these are at most MOST_COLUMNS, of at least LEAST_ROWS entries each.
MOST_COLUMNS, LEAST_ROWS = 512, 8


def axes_of_columns(t: Tensor) -> list[int]:
    """Return the axes along which an output has columns or channels that are judged by themselves."""
    axes = sorted({1, t.dim() - 1}) if t.dim() > 1 else []
    return [i for i in axes if 2 <= t.shape[i] <= MOST_COLUMNS and t.numel() >= LEAST_ROWS * t.shape[i]]


def by_column(t: Tensor, axis: int) -> Tensor:
    """The norm of each column."""
    return torch.linalg.vector_norm(t, dim=[i for i in range(t.dim()) if i != axis])


def _top(exact: Tensor) -> int:
    """The binary exponent of the largest finite entry."""
    most = max((float(one) for one in over(lambda x: x.abs().nan_to_num(0.0, 0.0, 0.0).max(), exact)), default=0.0)
    return math.frexp(most)[1]


def _places(x: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return the sizes of entries, and the group of each; those that are too small to count have the number GROUPS."""
    size = widened(x).abs()
    place = (top - torch.frexp(size).exponent.to(torch.int64)).clamp_(0, GROUPS)
    return size, place.masked_fill_((size == 0) | ~size.isfinite(), GROUPS)


def relative(got: Tensor, exact: Tensor) -> list[float]:
    """Return for each group the root mean square of the relative errors of `got`; 0 if the group has no entries."""
    top = _top(exact)

    def of(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        size, place = _places(x, top)
        error = torch.sub(widened(c), widened(x)).abs().div_(size).nan_to_num_(0.0, 0.0, 0.0).square_()
        squares, numbers = (torch.bincount(place, weights, GROUPS + 1)[:GROUPS] for weights in (error, None))
        return squares.cpu(), numbers.cpu()

    found = over(of, got, exact)
    squares, numbers = (torch.stack([one[i] for one in found]).sum(0) for i in (0, 1))
    return (squares / numbers.clamp_min(1)).sqrt().tolist()


def held_tightly(truths: list[Truth]) -> list[Truth]:
    """Return truths without a perturbed run, changed so that entries and columns are judged as if a run had moved none of them.

    An output that is the same by these truths is the same by truths with any perturbed run, whose bounds are at least as wide.
    Without this change it need not be: where no run tells how far they move, few entries are not judged one by one, and columns
    have wider bounds.
    """
    for truth in truths:
        own, exact = truth.reference, truth.exact
        if not isinstance(own, Tensor) or not isinstance(exact, Tensor) or own.shape != exact.shape or truth.extreme:
            continue
        if not exact.is_floating_point() or own.dtype not in ROUNDOFF:
            continue
        if own.numel() <= FEW:
            truth.entries = [0.0] * own.numel()
        elif own.dtype == torch.float32:
            truth.moved = {axis: [0.0] * own.shape[axis] for axis in axes_of_columns(own)}
    return truths


def beyond(got: Tensor, exact: Tensor, allowed: list[float], least: float) -> tuple[list[int], list[int]]:
    """Return for each group its number of entries, and how many are off by more than `allowed` times their size plus `least`."""
    top = _top(exact)

    def of(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        size, place = _places(x, top)
        bounds = torch.tensor([*allowed, math.inf], dtype=torch.float64, device=size.device)
        far = torch.sub(widened(c), widened(x)).abs() > bounds[place] * size + least
        return torch.bincount(place, minlength=GROUPS + 1).cpu(), torch.bincount(place[far], minlength=GROUPS + 1).cpu()

    found = over(of, got, exact)
    numbers, wrong = (torch.stack([one[i] for one in found]).sum(0)[:GROUPS].tolist() for i in (0, 1))
    return numbers, wrong
