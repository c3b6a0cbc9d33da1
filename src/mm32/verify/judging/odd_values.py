"""NaN and Inf of an output compared with the reference's, and where either of two answers is right. Pure functions of tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .bounds import Truth, rms

INF_HINT = (
    "; the reference's are infinite there: Inf - Inf or 0 * Inf on the way makes NaN of it, in split or compensated sums "
    "without a guard for Inf, and in products, transforms or scans put together in another order"
)
SPREAD_HINT = (
    "; the reference is finite there: NaN or Inf of an input has reached numbers that do not depend on it, as through tiles, "
    "transforms, or products with 0"
)


def settled(got: Tensor, truth: Truth) -> Tensor:
    """Return `got` with the reference's numbers in place of answers that are allowed as well.

    A NaN is allowed in entries that have been seen to be NaN (Truth.spread) and, with Truth.spreads, in entries that do not
    depend on the NaN of the inputs. Any value is allowed in entries that do depend on it where the reference has a number that
    comes of comparisons (Truth.compares): a rank by sorting is another number than one by counting.
    """
    if got.shape != truth.reference.shape or got.dtype != truth.reference.dtype:
        return got
    if truth.spread is not None:
        allowed = truth.spread.to(got.device)
        got = torch.where(got.isnan() & allowed & ~truth.reference.isnan(), truth.reference, got)
    if truth.free is None:
        return got
    independent, finite = truth.free[0].to(got.device), truth.reference.isfinite()
    if truth.compares and not truth.either:  # an Inf (`either`) can lead to a number without a comparison
        got = torch.where(~independent & finite, truth.reference, got)
    return torch.where(independent & got.isnan() & finite, truth.reference, got) if truth.spreads else got


def decided(got: Tensor, truth: Truth) -> tuple[Tensor, Tensor]:
    """Return `got` and the reference's result, with entries made equal where either of two answers is right.

    These are entries where the reference's own run and its float64 run differ in NaN and Inf. torch's GELU of Inf is NaN in fp32
    on some processors and Inf in float64: any value that is not finite is right there. Where the float64 run is finite, the
    reference's algorithm has spread a NaN further than it has to (a convolution by tiles, say): right is what the reference has,
    or a number as near to the truth as any other entry has to be. Where the reference is finite and its float64 run is not
    (attention in one kernel may give 0 for a row of NaN), NaN or Inf as in the float64 run is right.
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
    wide, other = reference.double(), exact.to(reference.device)
    exactly = (got.isnan() & other.isnan()) | (got.isinf() & (got.double() == other))
    got = torch.where(exactly & wide.isfinite(), reference, got)
    if truth.finite():
        return got, reference
    apart = ~wide.isfinite() & ~((wide == other) | (wide.isnan() & other.isnan()))
    either = apart & ~other.isfinite() & ~got.isfinite()
    spread = apart & other.isfinite() & got.isfinite()
    if bool(spread.any()):
        _, bounds = truth.own()
        unit = truth.gauge[spread] if truth.gauge is not None else other[spread].abs() + rms(other)
        error = (got[spread].double() - other[spread]).abs()
        spread[spread.clone()] = error <= bounds.componentwise * truth.u * unit
    return torch.where(either | spread, reference, got), reference


def further(got: Tensor, reference: Tensor) -> tuple[int, int, int]:
    """Count the entries that are NaN in `got` and infinite in the reference, NaN and finite, and finite in both."""
    if got.shape != reference.shape or not (got.is_floating_point() or got.is_complex()):
        return 0, 0, 0
    finite, nan = reference.isfinite(), got.isnan()
    return (
        int((nan & ~finite & ~reference.isnan()).sum()),
        int((nan & finite).sum()),
        int((finite & got.isfinite()).sum()),
    )


def odd_entries(t: Tensor) -> int:
    """How many numbers of a tensor are NaN or infinite."""
    return t.numel() - int(t.isfinite().sum()) if t.is_floating_point() or t.is_complex() else 0


def difference(got: Tensor, reference: Tensor, name: str, independent: Tensor | None = None) -> str:
    """Return how NaN, +Inf and -Inf of `got` are in other places than those of `reference`; empty if they are in the same.

    A complex number is infinite if either of its parts is; it is NaN if either part is and it is not infinite. `independent`:
    entries that do not depend on what is NaN or infinite in the inputs, if these are known.
    """
    got, reference = got.detach(), reference.detach()
    if got.is_complex():
        infinite = got.isinf(), reference.isinf()
        kinds = [("NaN", got.isnan() & ~infinite[0], reference.isnan() & ~infinite[1]), ("Inf", *infinite)]
    else:
        kinds = [
            ("NaN", got.isnan(), reference.isnan()),
            ("+Inf", got == math.inf, reference == math.inf),
            ("-Inf", got == -math.inf, reference == -math.inf),
        ]
    for what, a, b in kinds:
        extra, missing = a & ~b, b & ~a
        if bool(extra.any()):
            first = first_place(extra)
            if what == "NaN" and bool(reference[extra].isinf().all()):
                first += INF_HINT
            elif what == "NaN" and independent is not None and bool(independent.to(extra.device)[extra].all()):
                first += SPREAD_HINT
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
