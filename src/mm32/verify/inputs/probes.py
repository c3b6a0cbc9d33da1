"""Data of the same shapes that show errors of a contraction which random numbers of one sign hide.

Each probe fills the tensors, inputs or parameters, that the product's operands are views of, through whatever transposition
or reshape. `fill` runs in the reference's process; the outputs are judged in the tool's, as all are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..judging.contractions import Contraction
from .variations import MOST_RARE, RARE, SAMPLED


@dataclass(frozen=True)
class Probe:
    """A probe's name, what it tests, and how its output is judged: rule, bitwise, relative or places."""

    name: str
    asks: str
    judged: str


PROBES = (
    Probe(
        "peaked",
        "the script's own data, but for a few rows of A and columns of B of one large entry each: there no sum hides errors",
        "rule",
    ),
    Probe(
        "rare rows",
        "the script's own data, but for a few rows of A and columns of B 2^20 times as small, or of one of both as large: what "
        "looks at a sample misses them",
        "rule",
    ),
    Probe("randn", "zero-mean data: errors no longer hide in a large sum", "rule"),
    Probe("integers", "small integers: every sum is exact, so every bit must agree", "bitwise"),
    Probe("selects A", "B is one-hot, C copies entries of A: low-precision operands show", "relative"),
    Probe("selects B", "A is one-hot, C copies entries of B: low-precision operands show", "relative"),
    Probe("NaN and Inf", "one NaN, one Inf, one -Inf: they must appear where the reference has them", "places"),
    Probe(
        "scaled",
        "rows of A and columns of B scaled by 2^-8 .. 2^8: small rows must be as accurate as large ones",
        "rule",
    ),
    Probe("range of A", "rows of A some 2^40 times as large or as small, B small: all of fp32's range", "rule"),
    Probe("range of B", "columns of B some 2^40 times as large or as small, A small", "rule"),
)
# Of a candidate whose error on the script's own data is larger than the reference's alone.
REORDERED = Probe(
    "reordered",
    "the script's own data, the terms of every sum in another order: what errors are not of sums shows",
    "rule",
)
BY_NAME = {probe.name: probe for probe in (REORDERED, *PROBES)}
# Bounds of the relative error, in u. A product with 1 is exact in fp32; 4 u allows for operands of 22 bits (2 u each).
# TF32 and fp16 keep 11 bits and are up to 4096 u off.
FEW = 4
RANGE = 20  # log2 of how many times as large or as small rare rows are
SMOOTH = 16  # behind a smooth activation, which adds rounding errors of its own


class CannotProbe(Exception):
    """The probe cannot be applied; the message says why."""


def skip_reason(probe: Probe, activation: str | None, float32: bool) -> str | None:
    """Why a probe would show nothing for this problem; None if it would."""
    if probe.judged == "bitwise" and activation not in (None, "relu"):
        return f"not exact behind {activation}"
    if (probe.judged in ("bitwise", "relative") or probe.name.startswith(("range", "rare"))) and not float32:
        return "for fp32 only"
    return None


def fill(probe: Probe, contraction: Contraction, inputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """New values for the flat inputs of the contraction, on their device and with their strides.

    Raises CannotProbe where the operands cannot be written, for instance where both are views of one tensor.
    """
    device = inputs[contraction.sources[0]].device
    generator = torch.Generator(device=device).manual_seed(seed)
    out = [torch.empty_like(t).copy_(t) if isinstance(t, Tensor) else t for t in inputs]
    a, b = contraction.views(out)
    _check(contraction, out, a, b)
    vectors = (a.dim() == 1, b.dim() == 1)
    a = a.unsqueeze(0) if vectors[0] else a
    b = b.unsqueeze(1) if vectors[1] else b
    k = contraction.k
    floats = {*contraction.sources, *contraction.bias_sources}

    def normal(t: Tensor) -> None:
        t.copy_(torch.randn(t.shape, generator=generator, device=device, dtype=torch.float32))

    def positive(t: Tensor) -> None:
        t.copy_(torch.rand(t.shape, generator=generator, device=device, dtype=torch.float32) + 0.5)

    def integers(t: Tensor, largest: int) -> None:
        t.copy_(torch.randint(-largest, largest + 1, t.shape, generator=generator, device=device))

    if probe.name == "randn":
        for i in floats:
            normal(out[i])
    elif probe.name == "reordered":
        order = torch.randperm(k, generator=generator, device=device)
        a.copy_(a[..., order])
        b.copy_(b[..., order, :])
    elif probe.name == "peaked":
        for operand in (a, b.mT):
            _peak(operand, generator)
    elif probe.name == "rare rows":
        # Of one operand alone some rows are larger: the one entry where two such met would be all of the result's size.
        first = int(torch.randint(0, 2, (1,), generator=generator, device=device))
        for number, operand in enumerate((a, b.mT)):
            _make_rare(operand, generator, larger=number == first)
    elif probe.name == "integers":
        largest = max(1, min(8, int((2**22 / max(k, 1)) ** 0.5)))
        if k * largest * largest >= 2**24:
            raise CannotProbe(f"sums over K={k} are not exact")
        for i in floats:
            integers(out[i], largest)
    elif probe.name in ("selects A", "selects B"):
        full, hot, axis = (a, b, -2) if probe.name == "selects A" else (b, a, -1)
        for i in contraction.bias_sources:
            out[i].zero_()
        sign = torch.randint(0, 2, full.shape, generator=generator, device=device) * 2 - 1
        full.copy_((torch.rand(full.shape, generator=generator, device=device) + 1) * sign)
        hot.zero_()
        shape = list(hot.shape)
        shape[axis] = 1
        hot.scatter_(axis, torch.randint(0, k, shape, generator=generator, device=device), 1.0)
    elif probe.name == "scaled":
        for i in floats:
            normal(out[i])
        for i in contraction.bias_sources:
            out[i].zero_()
        rows = torch.randint(-8, 9, (a.shape[-2], 1), generator=generator, device=device)
        columns = torch.randint(-8, 9, (1, b.shape[-1]), generator=generator, device=device)
        a.mul_(torch.exp2(rows.to(a.dtype)))
        b.mul_(torch.exp2(columns.to(b.dtype)))
    elif probe.name.startswith("range"):
        for i in floats:
            normal(out[i])
        for i in contraction.bias_sources:
            out[i].zero_()
        wide, small = (a, b.mT) if probe.name == "range of A" else (b.mT, a)
        sizes = torch.randint(36, 45, (wide.shape[-2] + 1, 1), generator=generator, device=device)
        signs = torch.randint(0, 2, sizes.shape, generator=generator, device=device) * 2 - 1
        wide.mul_(torch.exp2((signs * sizes)[1:].to(a.dtype)))
        small.mul_(2.0 ** -int(sizes[0]))
    else:
        for i in floats:
            positive(out[i])
        m, n = a.shape[-2], b.shape[-1]
        a[..., m // 3, k // 2] = float("nan")
        a[..., (2 * m) // 3, k // 3] = float("inf")
        b[..., k // 4, n // 2] = -float("inf")
    return out


def _peak(t: Tensor, generator: torch.Generator) -> None:
    """Of one row in 64, one at least, all entries but one become 2^-24 times as large."""
    count, k = t.shape[-2], t.shape[-1]
    chosen = torch.randperm(count, generator=generator, device=t.device)[: max(1, count // 64)]
    factor = torch.full((len(chosen), k), 2.0**-24, device=t.device, dtype=t.dtype)
    at = torch.randint(0, k, (len(chosen), 1), generator=generator, device=t.device)
    factor.scatter_(1, at, 1.0)
    t[..., chosen, :] = t[..., chosen, :] * factor


def _make_rare(t: Tensor, generator: torch.Generator, larger: bool) -> None:
    """Of one row in 64, 2 to 8, none of them a multiple of 8, all become 2^20 times as small, or with `larger` half of
    them as large."""
    count = t.shape[-2]
    order = torch.randperm(count, generator=generator, device=t.device)
    chosen = order[order % SAMPLED != 0][: max(2, min(count // RARE, MOST_RARE))]
    by = torch.full((len(chosen), 1), 2.0**-RANGE, device=t.device, dtype=t.dtype)
    if larger:
        by[int(torch.randint(0, 2, (1,), generator=generator, device=generator.device)) :: 2] = 2.0**RANGE
    t[..., chosen, :] = t[..., chosen, :] * by


def _check(contraction: Contraction, out: Sequence[Tensor], a: Tensor, b: Tensor) -> None:
    left, right = contraction.sources
    if left == right or left in contraction.bias_sources or right in contraction.bias_sources:
        raise CannotProbe("both operands are views of one tensor")
    if contraction.k == 0 or a.numel() == 0 or b.numel() == 0:
        raise CannotProbe("an operand is empty")
    for operand, source in ((a, out[left]), (b, out[right])):
        if operand.untyped_storage().data_ptr() != source.untyped_storage().data_ptr():
            raise CannotProbe("an operand is a copy of an input, not a view of it")
        if any(stride == 0 and size > 1 for stride, size in zip(operand.stride(), operand.shape, strict=True)):
            raise CannotProbe("an operand is expanded from an input")
