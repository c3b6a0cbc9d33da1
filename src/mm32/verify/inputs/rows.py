"""Other data in place of one tensor's, by the names of variations: rows of other signs, sizes and orders. Runs in the
reference's process."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .catalogue import MIXED
from .contents import CannotVary, size_of

MOST_DISTINCT = 1 << 22  # how many distinct multiples of 2^-22 there are from 1/2 to 3/2
# At least so many large entries of a row lie at a stride: a choice by pieces takes fewer from each piece.
LEAST_STRIDES = 12
HUGE = 1e36  # fp32 holds it, and so does bfloat16
SMALL_MATRIX = 32  # rows
PADDED = 16  # of so many rows, one is padded with zeros at its beginning and one at its end
QUIET = 1 / 64  # the share of entries that stay as they are where the others become small


def _graded(t: Tensor, generator: torch.Generator) -> Tensor:
    steps = torch.randint(-8, 9, t.shape[-1:] if t.dim() else (), generator=generator, device=t.device)
    # Statistics in one pass, of data shifted by their first entry, are honest. If that entry were the largest, they would be
    # 27 u off.
    steps.view(-1)[:1].clamp_(max=0)
    return torch.randn(t.shape, generator=generator, device=t.device) * size_of(t) * torch.exp2(steps.float())


def _tiny_rows(t: Tensor, generator: torch.Generator) -> Tensor:
    """Multiply each row, or each entry of a vector, by a number of its own from 1e-14 to 1e-9."""
    rows = (*t.shape[:-1], 1) if t.dim() > 1 else t.shape
    drawn = torch.rand(rows, generator=generator, device=t.device)
    return t * torch.pow(10.0, -14 + 5 * drawn)


def _planted(t: Tensor, generator: torch.Generator) -> Tensor:
    """Make one row of 512 larger, and at least one. A row runs along the last axis; in a vector it is one entry."""
    rows = t.shape[:-1] if t.dim() > 1 else t.shape
    count = math.prod(rows)
    larger = torch.randperm(count, generator=generator, device=t.device) < max(1, count // 512)
    by = torch.exp2(2 + 1.6 * torch.rand(count, generator=generator, device=t.device))
    scale = torch.where(larger, by, 1.0).view(rows)
    return t * (scale.unsqueeze(-1) if t.dim() > 1 else scale)


def _mixed(t: Tensor, generator: torch.Generator) -> Tensor:
    """Give each row a sign and a size of its own, and make some rows of both signs."""
    rows = (t.shape[0],) + (1,) * (t.dim() - 1) if t.dim() else ()
    sign = torch.randint(0, 2, rows, generator=generator, device=t.device) * 2 - 1
    size = torch.exp2(torch.randint(-3, 4, rows, generator=generator, device=t.device).float())
    both = torch.rand(rows, generator=generator, device=t.device) < 0.5
    normal = torch.randn(t.shape, generator=generator, device=t.device) * size_of(t)
    return torch.where(both, normal, t.float() * sign) * size


def _axis_of_rows(t: Tensor) -> int | None:
    """Return the first axis that is longer than one. Its entries are the tensor's rows."""
    return next((i for i, size in enumerate(t.shape) if size > 1), None)


def _numbers(t: Tensor, generator: torch.Generator) -> Tensor:
    """Return a number for each row, from 0 on in random order, with as many axes as `t`."""
    shape, axis = [1] * t.dim(), _axis_of_rows(t)
    if axis is None:
        return torch.zeros(shape, dtype=torch.int64, device=t.device)
    shape[axis] = t.shape[axis]
    return torch.randperm(t.shape[axis], generator=generator, device=t.device).view(shape)


def kinds_of_rows(t: Tensor, kinds: int, generator: torch.Generator) -> Tensor:
    """Return a number below `kinds` for each row, as many rows of each number."""
    return _numbers(t, generator) % kinds


def _distinct(t: Tensor, generator: torch.Generator) -> Tensor:
    """Return multiples of 2^-22 around 1, each once, in random order."""
    if t.numel() > MOST_DISTINCT or t.dtype not in (torch.float32, torch.float64):
        raise CannotVary("")
    order = torch.randperm(t.numel(), generator=generator, device=t.device).view(t.shape)
    return 1 + (order - t.numel() // 2) * 2.0**-22


def _odd_rows(t: Tensor, generator: torch.Generator) -> Tensor:
    """Make a third of the rows negative, and sort a third, in turn upwards and downwards. In the others, make one entry in every
    stride large, where the stride is a power of two, another one from row to row."""
    length = t.shape[-1] if t.dim() else 1
    number = _numbers(t, generator)
    below, rising = -t.abs() - size_of(t) / 64, t.sort(-1).values
    strides = [2**i for i in range(2, 24) if 2**i * LEAST_STRIDES <= length]
    kinds = 3 if strides else 2
    ordered = torch.where(number // kinds % 2 == 0, rising, rising.flip(-1) if t.dim() else rising)
    if not strides:
        return torch.where(number % 2 == 0, below, ordered)
    stride = torch.tensor(strides[::-1], device=t.device)[number // 3 % len(strides)]
    large = torch.arange(length, device=t.device) % stride == stride // 3
    at_stride = torch.where(large, t.abs() + 4 * size_of(t), t)
    return torch.where(number % 3 == 0, below, torch.where(number % 3 == 1, ordered, at_stride))


def _clustered(t: Tensor, generator: torch.Generator) -> Tensor:
    """Replace each row by one of the first sixth of the rows, plus noise of a 256th to a 32nd of the usual size."""
    axis = _axis_of_rows(t)
    if axis is None:
        return t
    count = t.shape[axis]
    some = torch.randint(0, max(1, count // 6), (count,), generator=generator, device=t.device)
    shape = [count if i == axis else 1 for i in range(t.dim())]
    apart = torch.exp2(-8 + 3 * torch.rand(count, generator=generator, device=t.device)).view(shape) * size_of(t)
    return t.index_select(axis, some) + apart * torch.randn(t.shape, generator=generator, device=t.device)


def _opposed(t: Tensor, generator: torch.Generator) -> Tensor:
    """Make all rows the first one plus noise of a sixteenth of the usual size, and one of them its opposite."""
    axis = _axis_of_rows(t)
    if axis is None:
        return t
    count = t.shape[axis]
    signs = torch.ones(count, dtype=t.dtype, device=t.device)
    signs[int(torch.randint(0, count, (1,), generator=generator, device=t.device))] = -1
    near = torch.randn(t.shape, generator=generator, device=t.device) * size_of(t) / 16
    return signs.view([count if i == axis else 1 for i in range(t.dim())]) * (t.narrow(axis, 0, 1) + near)


def _huge_rows(t: Tensor, generator: torch.Generator) -> Tensor:
    """Put a third of the rows around -HUGE and a third around HUGE."""
    kind = kinds_of_rows(t, 3, generator)
    huge = HUGE * (1 + torch.rand(t.shape, generator=generator, device=t.device))
    return torch.where(kind == 0, -huge, torch.where(kind == 1, huge, t.float()))


def _sparse(t: Tensor, generator: torch.Generator) -> Tensor:
    """Set a third of the entries to zero, and a quarter of some rows, at their beginning or end, the same rows of all inputs; of
    small square matrices, which might become singular, half of the diagonal."""
    drawn = torch.rand(t.shape, generator=generator, device=t.device)
    if t.dim() > 2 and 1 < t.shape[-1] == t.shape[-2] <= SMALL_MATRIX:
        return torch.where(torch.eye(t.shape[-1], dtype=torch.bool, device=t.device) & (drawn < 0.5), 0, t)
    zero = drawn < 1 / 3
    if t.dim() > 1 and t.shape[-1] >= 4 and t.shape[-2] >= PADDED:
        row = torch.arange(t[..., 0].numel(), device=t.device).view(t.shape[:-1]).unsqueeze(-1) % PADDED
        place, some = torch.arange(t.shape[-1], device=t.device), generator.initial_seed() % PADDED
        zero = torch.where(row == some, place < t.shape[-1] // 4, zero)
        zero = torch.where(row == (some + 1) % PADDED, place >= t.shape[-1] - t.shape[-1] // 4, zero)
    return torch.where(zero, 0, t)


def _steady(t: Tensor, generator: torch.Generator) -> Tensor:
    row = torch.randn(t.shape[-1:], generator=generator, device=t.device) * (16 * size_of(t))
    return row.expand(t.shape)


def _normal(t: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(t.shape, generator=generator, device=t.device)


# The changes of a single input that holds data, by the names of variations.
CHANGES: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "zero-mean": lambda t, generator: _normal(t, generator) * size_of(t),
    "planted": _planted,
    "quiet": lambda t, generator: torch.where(
        torch.rand(t.shape, generator=generator, device=t.device) < QUIET, t, t * 2.0**-4
    ),
    "negated": lambda t, _: -t,
    "times 100": lambda t, _: t * 100,
    "times 1000": lambda t, _: t * 1e3,
    "times 10000": lambda t, _: t * 1e4,
    "times 100000": lambda t, _: t * 1e5,
    "times 0.001": lambda t, _: t * 1e-3,
    "times 1e-7": lambda t, _: t * 1e-7,
    "tiny rows": _tiny_rows,
    "moderate": lambda t, generator: -4 - 8 * torch.rand(t.shape, generator=generator, device=t.device),
    "offset": lambda t, generator: size_of(t) * (10 + _normal(t, generator)),
    "graded": _graded,
    "close": lambda t, generator: 1 + 2.0**-10 * _normal(t, generator),
    "distinct": _distinct,
    "constant": lambda t, _: torch.full_like(t, 0.5),
    "zero rows": lambda t, generator: torch.where(kinds_of_rows(t, 3, generator) == 0, 0, t),
    "odd rows": _odd_rows,
    "clustered": _clustered,
    "opposed": _opposed,
    "huge rows": _huge_rows,
    "far below": lambda t, _: (t.abs() + size_of(t)) * -1e5,
    "steady": _steady,
    "sparse": _sparse,
    MIXED: _mixed,
}
