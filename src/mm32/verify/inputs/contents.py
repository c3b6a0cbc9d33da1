"""What a tensor holds: data, a mask, labels, a distribution, something in order or symmetric; and how changes are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

SAMPLE, LARGER_SAMPLE = 1 << 12, 1 << 18  # entries in a sample of a tensor, and in a larger sample
# The most different values of an input that is a mask, labels or levels; and how many of them are named one by one.
FEW_VALUES, NAMED = 16, 4
SYMMETRIC = (
    1e-5  # by how much a product A A^T, relative to its largest entry, may be off where its sums are rounded otherwise
)
ORDERED = 8  # a row of at least so many entries is not in order by chance
# Structure is looked for in at most so many entries of a tensor, and in so many rows and columns of a matrix; and only a
# matrix of at most SQUARE rows may be orthogonal.
LOOKED_AT, CORNER, SQUARE = 1 << 22, 1024, 2048
MANY = 64  # a tensor of few values has at least so many entries for each
LEAST = 4  # an input of at least so many entries is not all one number by chance
# Types of integers, and how many bits their sums may have in "wide integers".
WIDEST = {torch.int64: 52, torch.int32: 30, torch.int16: 30, torch.int8: 30, torch.uint8: 30}


class CannotVary(Exception):
    """The variation has nothing to change; the message says why."""


def is_data(t: object) -> bool:
    """Whether a tensor holds data that may be changed: floating point, no mask or label, no distribution."""
    if not isinstance(t, Tensor) or not t.is_floating_point() or t.numel() == 0:
        return False
    if t.numel() > 16 and _has_few(t):
        others = _without_zeros(sampled(t, LARGER_SAMPLE))  # a sample of mostly zeros holds little else
        if others.numel() < FEW_VALUES * MANY:
            others = _without_zeros(t.detach())
        if others.numel() < MANY or _has_few(others):
            return False  # a mask, labels, a one-hot matrix
    return not has_structure(t)


def _has_few(t: Tensor) -> bool:
    """Whether a tensor's entries have few different values."""
    some = sampled(t).double()
    return torch.unique(some).numel() <= max(3, min(FEW_VALUES, some.numel() // MANY))


def _without_zeros(t: Tensor) -> Tensor:
    return t[t != 0]


def sampled(t: Tensor, most: int = SAMPLE) -> Tensor:
    """Return some entries, from all parts of the tensor, since its beginning may be padding."""
    flat = t.detach().reshape(-1)
    return flat[:: max(1, -(-flat.numel() // most))]


def few_values(t: Tensor) -> set[float] | None:
    """Return the different values of an input that has few, among them -Inf for what a mask leaves out; None where there are
    more than FEW_VALUES, or where one is NaN."""
    flat = t.detach().reshape(-1)
    found = {float(x) for x in torch.unique(flat[:SAMPLE])}
    while len(found) <= FEW_VALUES:
        others = torch.ones_like(flat, dtype=torch.bool)
        for x in found:
            others &= flat != x
        if not bool(others.any()):
            return found if not any(map(math.isnan, found)) else None
        found.add(float(flat[int(others.to(torch.uint8).argmax())]))
        if any(x != x for x in found):
            return None
    return None


def in_words(values: set[float]) -> str:
    """Write few values for a person: "0 and 1", "5 values from 0 to 4"."""
    ordered = [f"{x:g}" for x in sorted(values)]
    if len(ordered) > NAMED:
        return f"{len(ordered)} values from {ordered[0]} to {ordered[-1]}"
    return listed(ordered)


def listed(parts: Sequence[str]) -> str:
    """Join parts for a person: "a, b and c"."""
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def is_complex_data(t: object) -> bool:
    """Whether a tensor holds complex data that may be changed. An imaginary part of zeros may be changed too: a complex
    tensor may hold any."""
    return isinstance(t, Tensor) and t.is_complex() and t.numel() > 0 and not has_structure(t)


def has_structure(t: Tensor) -> bool:
    """Whether a tensor's entries belong together (see `structure`)."""
    return bool(structure(t))


def all_same(t: Tensor) -> bool:
    """Whether a tensor's entries are all the same."""
    return bool((t == t.reshape(-1)[0]).all())


def structure(t: Tensor) -> str:
    """Return how a tensor's entries belong together: in order, symmetric, triangular, orthogonal, unitary, or with rows that
    add up to one; empty if they do not."""
    t = t.detach()
    if not t.dim() or t.shape[-1] < 2 or not t.numel():
        return ""
    if t.is_complex():  # the real part of a Hermitian matrix is symmetric
        return structure(t.real) or ("unitary" if is_orthogonal(t) else "")
    if adds_up(t):
        return "with rows that add up to one"
    if t.shape[-1] >= ORDERED:
        steps = t.reshape(-1, t.shape[-1])[: max(1, LOOKED_AT // t.shape[-1])].diff(dim=-1)
        for rising in (steps >= 0, steps <= 0):
            if bool(rising.all()) and bool(steps.any()):
                return "in order"
    if t.dim() < 2 or t.shape[-1] != t.shape[-2] or t.shape[-1] < 3:
        return ""
    corner = _some(t)[..., :CORNER, :CORNER]
    wide = corner.double()
    if bool(((wide - wide.mT).abs() <= SYMMETRIC * wide.abs().max()).all()):
        return "symmetric"
    if not bool(corner.tril(-1).any()) or not bool(corner.triu(1).any()):
        return "triangular"
    return "orthogonal" if is_orthogonal(t) else ""


def _some(t: Tensor) -> Tensor:
    """Return the part of a large tensor that is looked at: the first entries of its first axis."""
    if t.dim() < 2 or t.numel() <= LOOKED_AT:
        return t
    return t[: max(CORNER if t.dim() == 2 else 1, LOOKED_AT // max(1, t[0].numel()))]


def is_orthogonal(t: Tensor) -> bool:
    """Whether a tensor holds square matrices whose rows are orthogonal and of length 1 (complex: unitary); false for more
    than SQUARE rows."""
    if t.dim() < 2 or t.shape[-1] != t.shape[-2] or not 3 <= t.shape[-1] <= SQUARE:
        return False
    if not bool(((torch.linalg.vector_norm(t, dim=-1) - 1).abs() < 1e-3).all()):  # cheaper to check than the product
        return False
    wide = t.to(torch.complex128 if t.is_complex() else torch.float64)
    eye = torch.eye(t.shape[-1], dtype=wide.dtype, device=t.device)
    return bool(((wide @ wide.mH - eye).abs() < 1e-3).all())


def adds_up(t: Tensor) -> bool:
    """Whether a tensor holds probabilities that add up to one."""
    return axis_of_sums(t) is not None


def axis_of_sums(t: Tensor) -> int | None:
    """Return the axis along which a tensor's entries, none of them negative, add up to one; None if there is none."""
    if not bool((sampled(t) >= 0).all()):
        return None
    t = _some(t)
    for axis in (-1, min(1, t.dim() - 1)):
        if bool(((t.sum(axis, dtype=torch.float64) - 1).abs() < 1e-3).all()):
            return axis
    return None


def size_of(t: Tensor) -> float:
    return float(torch.linalg.vector_norm(t.detach().float(), dtype=torch.float64)) / max(1, t.numel()) ** 0.5 or 1.0


def like(t: Tensor, values: Tensor) -> Tensor:
    """`values` with the strides and type of `t`."""
    return torch.empty_like(t).copy_(values)


def around_nan(t: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply `change` to the tensor, or to its real and its imaginary part. NaN that stands for a missing value stays where
    it is, and `change` gets 0 in its place: otherwise sizes, and with them all numbers that are drawn, would be NaN."""
    if t.is_complex():
        return torch.complex(around_nan(t.real, change).float(), around_nan(t.imag, change).float())
    missing = t.isnan()
    if not bool(missing.any()):
        return change(t)
    return change(t.masked_fill(missing, 0)).masked_fill(missing, math.nan)


def changed(out: list[object], values: Sequence[object]) -> list[object]:
    """Return `out`; raise CannotVary, with nothing to report, if nothing in it differs from `values`."""
    if all(new is old for new, old in zip(out, values, strict=True)):
        raise CannotVary("")
    return out


def few(t: Tensor, apart: int, generator: torch.Generator) -> Tensor:
    """Return which entries are to be changed: one in `apart` at random, and at least one."""
    some = torch.rand(t.shape, generator=generator, device=t.device) < 1 / apart
    at = int(torch.randint(0, t.numel(), (1,), generator=generator, device=generator.device))
    some.view(-1)[at] = True
    return some


def kind(value: Any) -> Any:
    """Return what two values must have in common to stand for each other: shape and type of tensors, the type of others."""
    return (value.shape, value.dtype) if isinstance(value, Tensor) else type(value)


def largest(values: Iterable[Any]) -> float:
    """Return the largest finite magnitude in the tensors of floating point; 0 without any."""
    most = 0.0
    for t in values:
        if isinstance(t, Tensor) and t.is_floating_point() and t.numel():
            ends = torch.stack(t.detach().aminmax())  # no copy of what may be gigabytes
            ends = ends if bool(ends.isfinite().all()) else torch.stack(t.detach().nan_to_num(0.0, 0.0, 0.0).aminmax())
            most = max(most, float(ends.abs().max()))
    return most
