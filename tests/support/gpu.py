"""What the numerical tests share: operands in awkward storage, outputs in guarded storage, the float64 reference and its error
bound."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import mm32
from mm32 import numerics, prepared, torch_product
from mm32 import plan as planning
from mm32.plan import EMULATED_KERNELS, KERNELS

POISON = 0x7FC0DEAD  # the bits of a quiet NaN that no arithmetic makes
UNIT = 2.0**-24  # unit roundoff of float32
SIZES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)


@dataclass(frozen=True)
class Runner:
    """One implementation under test: mm32.matmul on a device with a kernel."""

    device: str
    kernel: str

    def __call__(self, a: torch.Tensor, b: torch.Tensor, **options: object) -> torch.Tensor:
        return mm32.matmul(a, b, kernel=self.kernel, **options)

    def many(self, on_cpu: int, on_gpu: int) -> range:
        """How often to repeat a random case: on the CPU only the code around the kernels is tested."""
        return range(on_cpu if self.device == "cpu" else on_gpu)


CPU = pytest.param(Runner("cpu", "auto"), id="cpu")
CUDA = [pytest.param(Runner("cuda", k), id=f"cuda-{k}", marks=pytest.mark.gpu) for k in (*KERNELS, "auto")]


@dataclass(frozen=True)
class Store:
    """How a tensor is stored.

    `order`: the dimensions, outermost first (None: as they come). `step`: the distance of neighbours along the innermost one.
    `pad`: unused elements after each run of the innermost one. `offset`: elements from a 256-byte boundary to the first element.
    `expand`: dimensions that have stride 0."""

    order: tuple[int, ...] | None = None
    step: int = 1
    pad: int = 0
    offset: int = 0
    expand: tuple[int, ...] = ()

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        rank = len(shape)
        order = [d % rank for d in self.order] if self.order is not None else list(range(rank))
        expanded = {d % rank for d in self.expand}
        strides, reach, inner = [0] * rank, self.step, True
        for d in reversed(order):
            if d in expanded:
                continue
            strides[d] = reach
            reach = reach * max(shape[d], 1) + (self.pad if inner else 0)
            inner = False
        return tuple(strides)


MATRIX_STORES = {
    "row": Store((-2, -1)),
    "col": Store((-1, -2)),
    "row_padded_by_4": Store((-2, -1), pad=4),
    "row_padded_by_1": Store((-2, -1), pad=1),
    "col_padded_by_4": Store((-1, -2), pad=4),
    "stepped": Store((-2, -1), step=3, pad=5),
    "col_stepped": Store((-1, -2), step=2, pad=1),
    "row_expanded": Store((-2, -1), expand=(-2,)),
    "col_expanded": Store((-2, -1), expand=(-1,)),
}
OUT_STORES = {name: MATRIX_STORES[name] for name in ("row", "col", "row_padded_by_4", "row_padded_by_1", "stepped")}
MARGIN = 64  # poisoned elements before a tensor and after it: 256 bytes


class Placed:
    """A tensor inside a larger buffer that is the poison NaN everywhere else: a read outside the tensor shows in the result, and
    a write outside it in `intact()`."""

    def __init__(self, values: torch.Tensor | tuple[int, ...], store: Store = Store(), device: str = "cpu") -> None:
        shape = tuple(values.shape) if isinstance(values, torch.Tensor) else tuple(values)
        strides = store.strides(shape)
        span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if all(shape) else 0
        start = MARGIN + store.offset
        self.bits = torch.full((start + span + MARGIN,), POISON, dtype=torch.int32, device=device)
        self.own = torch.zeros_like(self.bits, dtype=torch.bool)
        self.own.as_strided(shape, strides, start).fill_(True)
        self.view = self.bits.view(torch.float32).as_strided(shape, strides, start)
        if isinstance(values, torch.Tensor):
            source = values
            for d, stride in enumerate(strides):  # an expanded dimension repeats its first slice
                source = source.narrow(d, 0, min(1, shape[d])) if stride == 0 else source
            target = tuple(min(1, n) if s == 0 else n for n, s in zip(shape, strides, strict=True))
            self.bits.view(torch.float32).as_strided(target, strides, start).copy_(source)
        self.before = self.bits.clone()

    def unchanged(self) -> bool:
        """Whether no bit has changed, neither the tensor's nor those around it."""
        return torch.equal(self.bits, self.before)

    def intact(self) -> bool:
        """Whether no bit outside the tensor has changed."""
        return torch.equal(self.bits[~self.own], self.before[~self.own])


ALL_TILES = planning.emulated.TENSOR_TILES  # read before a fixture removes some of them


def forget_plans() -> None:
    """Empty the caches of plans, so that the planner chooses again from what it now has."""
    planning.cost.of.cache_clear()
    prepared.CACHE.clear()


def roundings(depth: int, kernel: str) -> float:
    """Return the bound of the error of a sum of `depth` products, in units of u |a| @ |b| (`reference`).

    An fp32 matmul's bound is K; 8 more leave room for products that are themselves rounded to 22 bits. Whatever K is, splitting
    costs up to 8 u for lo's rounding, 4 for lo*lo and 4 for small elements, and tensor cores truncate. At small K an explicitly
    named kernel that splits its operands may therefore exceed K + 8, and is held to the bound of docs/numerics.md ("auto" chooses
    no such kernel there)."""
    if kernel not in EMULATED_KERNELS:
        return depth + 8
    card = {}
    if kernel == "mma" and torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 8:
        card = {"kept_bits": 24, "width": 8}
    # tensorcore: its plan decides whether it splits its own operands and how often it promotes, so take the largest bound.
    forms = (
        [{"inline_pack": d, "promote": p} for d in (False, True) for p in (1, 4)] if kernel == "tensorcore" else [{}]
    )
    tiers = (numerics.FP16X3, numerics.SCALED_LO, numerics.BF16X6)
    split = (
        max(numerics.bound(depth, kernel, tier=t, **form, **card) for form in forms for t in tiers) if depth else 0.0
    )
    return max(depth + 8, split + 1)  # 1: the bias


def reference(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    kernel: str = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result in float64 and, element by element, the error that a float32 matmul may have.

    For a sum of K products in float32, in any order and with or without fused multiply-adds, the error is at most
    gamma_K * (|a| @ |b|), gamma_K = K u / (1 - K u), u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms,
    section 3.1); the bias adds one rounding. `roundings` gives the further allowance of each kernel. An activation
    has a slope of at most 1.13 (gelu) and an error of a few ulps of its value and of its argument (1 + erf(x) and x / (1 + e^-x)
    cancel relative to x, not to the value). Below the normal range the error is absolute: one spacing, 2^-149, per operation.
    """
    a64, b64 = a.double(), b.double()
    depth = a.shape[-1]
    z, magnitude = a64 @ b64, a64.abs() @ b64.abs()
    if bias is not None:
        bias64 = (bias if b.dim() > 1 else bias[0]).double()
        z, magnitude = z + bias64, magnitude + bias64.abs()
    tolerance = roundings(depth, kernel) * (UNIT * magnitude + 2.0**-149)
    if activation is None:
        return z, tolerance
    value = torch_product.activate(z, activation)
    return value, 1.13 * tolerance + 8 * UNIT * (value.abs() + z.abs())


def assert_close(actual: torch.Tensor, expected: torch.Tensor, tolerance: torch.Tensor, what: object = "") -> None:
    """Assert |actual - expected| <= tolerance for every element; a NaN never passes."""
    assert actual.dtype == torch.float32
    assert actual.shape == expected.shape, what
    error = (actual.double() - expected).abs()
    bad = ~(error <= tolerance)
    if bad.any():
        first = tuple(bad.nonzero()[0].tolist())
        pytest.fail(
            f"{int(bad.sum())} of {bad.numel()} elements are wrong; at {first}: got {actual[first].item()!r}, expected "
            f"{expected[first].item()!r}, error {error[first].item():.3e} > {tolerance[first].item():.3e}; {what}"
        )


def check(
    run: Callable[..., torch.Tensor],
    a: Placed,
    b: Placed,
    bias: Placed | None = None,
    activation: str | None = None,
    out: Placed | None = None,
    what: object = "",
) -> torch.Tensor:
    """Run one product and assert what must hold for any: right values, intact guard bands, unchanged inputs."""
    bias_view = None if bias is None else bias.view
    kernel = run.kernel if isinstance(run, Runner) else "auto"
    expected, tolerance = reference(a.view, b.view, bias_view, activation, kernel)
    result = run(a.view, b.view, bias=bias_view, activation=activation, out=None if out is None else out.view)
    if out is None:
        assert result.is_contiguous(), what
    else:
        assert result is out.view, what
        assert out.intact(), f"wrote outside its output: {what}"
    assert_close(result, expected, tolerance, what)
    for name, operand in (("a", a), ("b", b), ("bias", bias)):
        assert operand is None or operand.unchanged(), f"wrote to {name}: {what}"
    return result


def random_out(rng: random.Random, shape: tuple[int, ...], device: str) -> tuple[Placed | None, str]:
    """Return an output in random storage, or None for a new one."""
    name = rng.choice([None, *OUT_STORES])
    if name is None:
        return None, "new"
    store, offset = OUT_STORES[name], rng.randrange(4)
    return Placed(shape, Store(store.order, store.step, store.pad, offset), device), f"{name}+{offset}"


def random_matrix(rng: random.Random, rows: int, cols: int, name: str, device: str) -> tuple[Placed, str]:
    """Return normal values in the named storage, 0 to 3 elements off alignment."""
    store, offset = MATRIX_STORES[name], rng.choice((0, 0, 1, 2, 3))
    placed = Placed(
        torch.randn(rows, cols, device=device), Store(store.order, store.step, store.pad, offset, store.expand), device
    )
    return placed, f"{name}+{offset}"


def beyond_the_first_tier() -> int:
    """Return in how many calls so far the card computed the product by a lower tier, or recomputed a part of it."""
    tiers = mm32.stats().tiers
    return sum(tiers[name] for name in ("bf16x6", "FMA", "tiles recomputed", "rows recomputed"))
