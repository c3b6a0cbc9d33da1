"""Whether a candidate's errors are those of a number format: of products with operands rounded to fewer bits than fp32's.

What rounding the operands of every product to a format does to the output is known: it is computed in float64, for the data at
hand. An honest kernel's errors come from the order of its sums and have nothing in common with this. So the correlation of the
two tells which of them it is, on data of any kind, even where the error is smaller than that of a long sum in fp32. No candidate
can tell such data from others, because they are the script's own. (In signal processing this is called a matched filter.)

An honest kernel's errors may have a few degrees of freedom that the format's errors have as well: a scale of all of the output or
of one row, an offset of a row or a column. These are taken out first. Of what is left, each row counts as one sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .bounds import widened
from .rounding import round_to

BITS = 11  # bits of a significand in TF32 and fp16
LEAST_ROWS, MOST_ENTRIES = 32, 1 << 24
# Errors are a format's if they correlate with the format's by CORRELATION or more, the part that both have is SHARE (from, to)
# times as large as the format's, and the rows agree by DEVIATIONS standard deviations or more. If one operand of two is rounded,
# the correlation is 0.7, and the part is half of the format's.
CORRELATION, SHARE, DEVIATIONS = 0.3, (0.2, 2.5), 5.0
# At least this part of the errors must be left when what entries have in common is taken out. Of uniform data, whose mean is not
# zero, half is left.
LEFT = 0.25


def _pair(t: Tensor, way: Callable[[Tensor], Tensor]) -> Tensor:
    high = round_to(t, 8, way)
    return high + round_to(t - high, 8, way)


# How operands are rounded, by the name that the reason gives it.
FORMATS: dict[str, Callable[[Tensor], Tensor]] = {
    "pairs of bfloat16": lambda t: _pair(t, torch.round),
    "pairs of truncated bfloat16": lambda t: _pair(t, torch.trunc),
    "TF32 or fp16": lambda t: round_to(t, BITS),
    "truncated TF32": lambda t: round_to(t, BITS, torch.trunc),
}


def _rows(t: Tensor) -> Tensor:
    """Return entries as rows along the last axis; a vector, and rows that are few and long, in pieces."""
    count = t.shape[-1] if t.dim() > 1 else 1
    if t.numel() // max(1, count) >= LEAST_ROWS:
        return widened(t).reshape(-1, count)
    length = max(1, t.numel() // (2 * LEAST_ROWS))
    return widened(t).reshape(-1)[: t.numel() // length * length].view(-1, length)


def _without_common(t: Tensor, like: Tensor) -> Tensor:
    """Return errors without what all entries, those of a row, or those of a column have in common."""
    size = like.square().sum()
    t = t - like * ((t * like).sum() / size if float(size) else 0.0)
    if t.shape[1] >= 4:
        of_row = (t * like).sum(1, keepdim=True) / like.square().sum(1, keepdim=True).clamp_min(1e-300)
        t = t - like * of_row
        t = t - t.mean(1, keepdim=True)
    return t - t.mean(0, keepdim=True)


def _agreement(got: Tensor, exact: Tensor, rough: Tensor) -> tuple[float, float]:
    """Return the correlation of the errors of two outputs, and the part of the errors of `got` that both outputs have.

    That part is relative to the errors of `rough`. Both numbers are 0 where agreement may be chance.
    """
    if got.numel() > MOST_ENTRIES or not got.numel() or got.is_complex():
        return 0.0, 0.0
    x = _rows(exact)
    if len(x) < LEAST_ROWS or not bool(x.isfinite().all()):
        return 0.0, 0.0
    whole = [_rows(t) - x for t in (got, rough)]
    error, other = (_without_common(t, x) for t in whole)
    agreeing = (error * other).sum(1)
    sizes = float(error.norm()), float(other.norm())
    if not all(math.isfinite(size) and size > 0 for size in sizes):
        return 0.0, 0.0
    if any(size < LEFT * float(t.norm()) for size, t in zip(sizes, whole, strict=True)):
        return 0.0, 0.0
    total = float(agreeing.sum())
    if total < DEVIATIONS * float(agreeing.norm()):
        return 0.0, 0.0
    return total / (sizes[0] * sizes[1]), total / sizes[1] ** 2


def resembles(got: Tensor, exact: Tensor, rough: Tensor) -> bool:
    """Return whether the errors of `got` are mostly those of `rough`, the output in a number format."""
    # The float64 outputs, which have twice the bytes, may have come on the card where `got` came by the host.
    correlation, share = _agreement(got, exact.to(got.device), rough.to(got.device))
    return correlation >= CORRELATION and SHARE[0] <= share <= SHARE[1]


def shared(got: Tensor, exact: Tensor, other: Tensor) -> float:
    """Return the part of the errors of `got` that `other`, computed from the same numbers in another order, has as well."""
    correlation, _ = _agreement(got, exact, other)
    return math.sqrt(correlation) if correlation >= CORRELATION else 0.0
