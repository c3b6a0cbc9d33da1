"""NaN and Inf of an output beside the reference's, and where either of two answers is right. Pure functions of tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .bounds import Truth, rms

INF_HINT = "; the reference's are infinite there: compensated or split sums need a guard for Inf"


def decided(got: Tensor, truth: Truth) -> tuple[Tensor, Tensor]:
    """`got` and the reference's result, with the entries equal in which either of two answers is right: those that the
    reference's own run makes NaN or Inf of, and its float64 run something else.

    torch's GELU of Inf is NaN in fp32 on some processors and Inf in float64: any value that is not finite is right there. Where
    the float64 run is finite, the reference's algorithm has spread a NaN further than it has to (a convolution by tiles, say):
    right is what the reference has, or a number as near to the truth as any other entry has to be.
    """
    reference, exact = truth.reference, truth.exact
    if truth.free is not None:
        where, usual = (t.to(got.device) for t in truth.free)
        where = where & ~reference.isfinite() & got.isfinite()
        if bool(where.any()):
            _, bounds = truth.own()
            unit = usual.abs() + rms(usual)
            near = (got.double() - usual.double()).abs() <= bounds.componentwise * truth.u * unit.double()
            got = torch.where(where & near, reference, got)
    if truth.either:
        got = torch.where(reference.isnan(), reference, got)
    if (
        not isinstance(exact, Tensor)
        or truth.rows is not None
        or reference.is_complex()
        or exact.shape != reference.shape
    ):
        return got, reference
    if truth.finite():
        return got, reference
    wide, other = reference.double(), exact.to(reference.device)
    apart = ~wide.isfinite() & ~((wide == other) | (wide.isnan() & other.isnan()))
    either = apart & ~other.isfinite() & ~got.isfinite()
    spread = apart & other.isfinite() & got.isfinite()
    if bool(spread.any()):
        _, bounds = truth.own()
        unit = truth.gauge[spread] if truth.gauge is not None else other[spread].abs() + rms(other)
        error = (got[spread].double() - other[spread]).abs()
        spread[spread.clone()] = error <= bounds.componentwise * truth.u * unit
    return torch.where(either | spread, reference, got), reference


def difference(got: Tensor, reference: Tensor, name: str) -> str:
    """How NaN, +Inf and -Inf of `got` are in other places than those of `reference`; empty if they are in the same."""
    got, reference = got.detach(), reference.detach()
    if got.is_complex():
        got, reference = torch.view_as_real(got.resolve_conj()), torch.view_as_real(reference.resolve_conj())
    for what, a, b in (
        ("NaN", got.isnan(), reference.isnan()),
        ("+Inf", got == math.inf, reference == math.inf),
        ("-Inf", got == -math.inf, reference == -math.inf),
    ):
        extra, missing = a & ~b, b & ~a
        if bool(extra.any()):
            first = first_place(extra) + (INF_HINT if what == "NaN" and bool(reference[extra].isinf().all()) else "")
            return f"{name}: {int(extra.sum())} entries are {what} where the reference's are not, first {first}"
        if bool(missing.any()):
            return f"{name}: {int(missing.sum())} entries are not {what} where the reference's are, first {first_place(missing)}"
    return ""


def first_place(mask: Tensor) -> str:
    index = int(mask.reshape(-1).to(torch.uint8).argmax())
    place = []
    for size in reversed(mask.shape):
        place.append(index % size)
        index //= size
    return "at " + str(tuple(reversed(place)))
