"""Data that show errors of a contraction which random numbers of one sign hide, for tensors of the same shapes.

Each probe fills the tensors (inputs or parameters) of which the product's operands are views, through any transposition or
reshape. `fill` runs in the reference's process; the outputs are judged in the tool's process, as all outputs are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..judging.contractions import Contraction
from .rare_rows import MOST_RARE, SAMPLED


@dataclass(frozen=True)
class Probe:
    """A probe's name, what it tests, and how its output is judged: rule, bitwise, relative or places. `own`: the probe
    changes the script's own data, which have to be restored before it."""

    name: str
    asks: str
    judged: str
    own: bool = False


PROBES = (
    Probe(
        "peaked",
        "the script's own data, but for a few rows of A and columns of B of one large entry each: there no sum hides errors",
        "rule",
        own=True,
    ),
    Probe(
        "rare rows",
        "the script's own data, but for a few rows of A and columns of B 2^20 times as small, or of one of both as large: what "
        "looks at a sample misses them",
        "rule",
        own=True,
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
# Only for a candidate whose error on the script's own data is large (Likeness.keep_first).
REORDERED = Probe(
    "reordered",
    "the script's own data, the terms of every sum in another order: what errors are not of sums shows",
    "rule",
    own=True,
)
BY_NAME = {probe.name: probe for probe in (REORDERED, *PROBES)}
# Bounds of the relative error, in u. A product with 1 is exact in fp32; 4 u allows for operands of 22 bits (2 u each).
# TF32 and fp16 keep 11 bits and are up to 4096 u off.
FEW = 4
PEAKED = 2.0**-36
RANGE = 20  # log2 of the factor by which rare rows are larger or smaller
SMOOTH = 16  # the bound, in u, behind a smooth activation, which adds rounding errors of its own


class CannotProbe(Exception):
    """The probe cannot be applied; the message says why."""


def skip_reason(probe: Probe, activation: str | None, float32: bool) -> str | None:
    """Why a probe would show nothing for this problem; None if it would."""
    if probe.judged == "bitwise" and activation not in (None, "relu"):
        return f"not exact behind {activation}"
    if (probe.judged in ("bitwise", "relative") or probe.name.startswith(("range", "rare"))) and not float32:
        return "for fp32 only"
    return None


@dataclass
class Operands:
    """The tensors that a probe fills.

    `a`, `b`: the operands of the product as matrices, views of inputs or parameters. `k`: the length of its sums. `floats`:
    all tensors of floating point. `biases`: those of them that are a bias.
    """

    a: Tensor
    b: Tensor
    k: int
    floats: list[Tensor]
    biases: list[Tensor]
    generator: torch.Generator

    def normal(self) -> None:
        for t in self.floats:
            t.copy_(torch.randn(t.shape, generator=self.generator, device=t.device, dtype=torch.float32))

    def positive(self) -> None:
        for t in self.floats:
            t.copy_(torch.rand(t.shape, generator=self.generator, device=t.device, dtype=torch.float32) + 0.5)

    def integers(self, low: int, high: int, shape: Sequence[int]) -> Tensor:
        """Draw integers from `low` to `high`, without `high`."""
        return torch.randint(low, high, tuple(shape), generator=self.generator, device=self.generator.device)

    def signs(self, shape: Sequence[int]) -> Tensor:
        return self.integers(0, 2, shape) * 2 - 1

    def without_bias(self) -> None:
        for t in self.biases:
            t.zero_()


def fill(probe: Probe, contraction: Contraction, inputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Return new values for the flat inputs of the contraction, on their device and with their strides.

    Raises CannotProbe where the operands cannot be written, for instance where both are views of one tensor.
    """
    generator = torch.Generator(device=inputs[contraction.sources[0]].device).manual_seed(seed)
    out = [torch.empty_like(t).copy_(t) if isinstance(t, Tensor) else t for t in inputs]
    a, b = contraction.views(out)
    _check(contraction, out, a, b)
    a = a.unsqueeze(0) if a.dim() == 1 else a
    b = b.unsqueeze(1) if b.dim() == 1 else b
    floats = [out[i] for i in {*contraction.sources, *contraction.bias_sources}]
    biases = [out[i] for i in contraction.bias_sources]
    FILL[probe.name](Operands(a, b, contraction.k, floats, biases, generator))
    return out


def _randn(of: Operands) -> None:
    of.normal()


def _reordered(of: Operands) -> None:
    order = torch.randperm(of.k, generator=of.generator, device=of.generator.device)
    of.a.copy_(of.a[..., order])
    of.b.copy_(of.b[..., order, :])


def _peaked(of: Operands) -> None:
    for operand in (of.a, of.b.mT):
        _peak(operand, of.generator)


def _rare_rows(of: Operands) -> None:
    """Change a few rows of both operands, and make rows larger in one of them only: the one entry where two larger rows met
    would be all of the result's size."""
    first = int(of.integers(0, 2, (1,)))
    for number, operand in enumerate((of.a, of.b.mT)):
        _make_rare(operand, of.generator, larger=number == first)


def _integers(of: Operands) -> None:
    largest = max(1, min(8, int((2**22 / max(of.k, 1)) ** 0.5)))
    if of.k * largest * largest >= 2**24:
        raise CannotProbe(f"sums over K={of.k} are not exact")
    for t in of.floats:
        t.copy_(of.integers(-largest, largest + 1, t.shape))


def _selects(of: Operands, full: Tensor, hot: Tensor, axis: int) -> None:
    """`hot` has a single 1 along its `axis`, so that the result copies entries of `full`."""
    of.without_bias()
    sign = of.signs(full.shape)
    full.copy_((torch.rand(full.shape, generator=of.generator, device=full.device) + 1) * sign)
    hot.zero_()
    shape = list(hot.shape)
    shape[axis] = 1
    hot.scatter_(axis, of.integers(0, of.k, shape), 1.0)


def _scaled(of: Operands) -> None:
    of.normal()
    of.without_bias()
    rows, columns = of.integers(-8, 9, (of.a.shape[-2], 1)), of.integers(-8, 9, (1, of.b.shape[-1]))
    of.a.mul_(torch.exp2(rows.to(of.a.dtype)))
    of.b.mul_(torch.exp2(columns.to(of.b.dtype)))


def _range(of: Operands, wide: Tensor, small: Tensor) -> None:
    of.normal()
    of.without_bias()
    sizes = of.integers(36, 45, (wide.shape[-2] + 1, 1))
    wide.mul_(torch.exp2((of.signs(sizes.shape) * sizes)[1:].to(wide.dtype)))
    small.mul_(2.0 ** -int(sizes[0]))


def _special(of: Operands) -> None:
    """Put in a NaN, and Inf at the first and at the last place of K, which kernels read again for places beyond the last,
    and multiply by 0."""
    of.positive()
    m, n = of.a.shape[-2], of.b.shape[-1]
    of.a[..., m // 3, of.k // 2] = float("nan")
    of.a[..., (2 * m) // 3, 0] = float("inf")
    of.b[..., of.k - 1, n // 2] = -float("inf")


FILL: dict[str, Callable[[Operands], None]] = {
    "randn": _randn,
    "reordered": _reordered,
    "peaked": _peaked,
    "rare rows": _rare_rows,
    "integers": _integers,
    "selects A": lambda of: _selects(of, of.a, of.b, -2),
    "selects B": lambda of: _selects(of, of.b, of.a, -1),
    "scaled": _scaled,
    "range of A": lambda of: _range(of, of.a, of.b.mT),
    "range of B": lambda of: _range(of, of.b.mT, of.a),
    "NaN and Inf": _special,
}


def _peak(t: Tensor, generator: torch.Generator) -> None:
    """In one row of 64, at least one, multiply all entries but one by PEAKED / K. The one is drawn among the row's large ones.

    So the sum of the others is no more than rounding of the one, also where the one meets a number that is small by chance. If
    they were larger, a sum in order would lose half of them or more, because each would be less than half a unit of the one in
    the last place."""
    count, k = t.shape[-2], t.shape[-1]
    chosen = torch.randperm(count, generator=generator, device=t.device)[: max(1, count // 64)]
    rows = t[..., chosen, :]
    sizes = rows.abs()
    order = torch.rand(rows.shape, generator=generator, device=t.device)
    at = torch.where(sizes >= sizes.amax(-1, keepdim=True) / 2, order, -1.0).argmax(-1, keepdim=True)
    factor = torch.full(rows.shape, PEAKED / k, device=t.device, dtype=t.dtype)
    t[..., chosen, :] = rows * factor.scatter_(-1, at, 1.0)


def _make_rare(t: Tensor, generator: torch.Generator, larger: bool) -> None:
    """Make two rows, at places that are no multiples of 8, 2^20 times as small; with `larger`, one of them 2^20 times as
    large instead."""
    order = torch.randperm(t.shape[-2], generator=generator, device=t.device)
    chosen = order[order % SAMPLED != 0][:MOST_RARE]
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
