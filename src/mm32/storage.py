"""Where a strided tensor's elements lie in memory: their extent, whether two tensors share any, the strides of a new tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def extent(t: torch.Tensor) -> tuple[int, int]:
    """The first and one-past-last byte that a tensor's elements can touch."""
    start = t.data_ptr()
    if t.numel() == 0:
        return start, start
    span = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return start, start + (span + 1) * t.element_size()


def spans(*tensors: torch.Tensor | None) -> tuple[int, ...]:
    """For each tensor, the number of bytes from the first to the last that its elements can touch; 0 for None."""
    extents = [(0, 0) if t is None else extent(t) for t in tensors]
    return tuple(end - start for start, end in extents)


def overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether two tensors may share an element (conservative only where they interleave without a common pitch)."""
    (x_lo, x_hi), (y_lo, y_hi) = extent(x), extent(y)
    if x_lo == x_hi or y_lo == y_hi or x_hi <= y_lo or y_hi <= x_lo:
        return False

    def width(t: torch.Tensor, pitch: int) -> int:
        return 1 + sum((n - 1) * st for n, st in zip(t.shape, t.stride(), strict=True) if st % pitch)

    # Slices of one buffer lie side by side: modulo the pitch, each is a range of columns of its own.
    for pitch in {st for n, st in zip(x.shape, x.stride(), strict=True) if n > 1 and st > 1}:
        apart, rest = divmod(y_lo - x_lo, x.element_size())
        if rest == 0 and width(x, pitch) <= apart % pitch <= pitch - width(y, pitch):
            return False
    return True


def self_overlapping(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether two index tuples may address the same element (conservative only where strides interleave)."""
    dims = sorted((st, sz) for st, sz in zip(strides, shape, strict=True) if sz > 1)
    reach = 1
    for stride, size in dims:
        if stride < reach:
            return True
        reach = stride * (size - 1) + reach
    return False


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a new tensor of this shape, as torch has them."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def new_strides(shape: tuple[int, ...], beside: torch.Tensor | None) -> tuple[int, ...]:
    """The strides of new memory for matrices of this shape. Its rows are contiguous; or its columns, if the elements of a column
    are closer together in `beside`, which an element-wise pass then reads with it."""
    if beside is None or beside.stride(-2) >= beside.stride(-1):
        return contiguous_strides(shape)
    *batch, column, row = contiguous_strides((*shape[:-2], shape[-1], shape[-2]))
    return (*batch, row, column)
