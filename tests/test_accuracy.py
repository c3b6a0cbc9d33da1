"""The accuracy contract (docs/numerics.md), family by family: by both gauges, an error no larger than that of torch's fp32 matmul
on the same data, whichever tier the card chooses. Where the data leave no doubt, the tier and what is recomputed are checked too.
On the CPU the families go through the numerics model, at small sizes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import mm32
from mm32 import gemm, numerics
from mm32 import plan as planning
from mm32.cuda import launch
from mm32.numerics import BF16X6, FMA, FP16X3, SCALED_LO
from mm32.numerics.constants import LONG_K
from mm32.numerics.decision import Decision
from mm32.plan import Plan, Unplannable, cost, emulated
from support.gpu import MATRIX_STORES, UNIT, Placed

LAYOUTS = {"nn": ("row", "row"), "nt": ("row", "col"), "tn": ("col", "row"), "tt": ("col", "col")}
KERNELS = ("tensorcore", "mma", "auto", "simt")
Pair = tuple[torch.Tensor, torch.Tensor]
Family = Callable[[int, int, int, str], Pair]


# ---------------------------------------------------------------------------------------------------------------------
# Families: (m, n, k, device) -> A, B, float32


def randn(*shape: int, device: str) -> torch.Tensor:
    return torch.randn(*shape, device=device)


def both(make: Callable[..., torch.Tensor]) -> Family:
    return lambda m, n, k, device: (make(m, k, device=device), make(k, n, device=device))


def heavy_tailed(phi: float) -> Family:
    return both(
        lambda *shape, device: (torch.rand(*shape, device=device) - 0.5) * torch.exp(phi * randn(*shape, device=device))
    )


def powers(shape: tuple[int, int], reach: int, device: str) -> torch.Tensor:
    return torch.exp2(torch.randint(-reach, reach + 1, shape, device=device).float())


def scaled_rows(m: int, n: int, k: int, device: str) -> Pair:
    return randn(m, k, device=device) * powers((m, 1), 60, device), randn(k, n, device=device) * powers(
        (1, n), 60, device
    )


def scaled_depth(m: int, n: int, k: int, device: str) -> Pair:
    scale = powers((1, k), 20, device)
    return randn(m, k, device=device) * scale, randn(k, n, device=device) / scale.T


def one_hot(n: int, k: int, device: str) -> torch.Tensor:
    b = torch.zeros(k, n, device=device)
    b[torch.randint(0, k, (n,), device=device), torch.arange(n, device=device)] = 1
    return b


def picked_small(m: int, n: int, k: int, device: str) -> Pair:
    a = torch.ones(m, k, device=device) + torch.rand(m, k, device=device)
    a[:, 1::2] *= 2.0**-40
    return a, one_hot(n, k, device)


def small_behind_zeros(m: int, n: int, k: int, device: str) -> Pair:
    """A's large elements meet zeros of B, and four small elements of each row make the result; the rest of A is zeros."""
    a, b = torch.zeros(m, k, device=device), randn(k, n, device=device)
    a[:, : k // 4] = randn(m, k // 4, device=device)
    a[:, k // 4 : k // 4 + 4] = 1e-9 * randn(m, 4, device=device)
    b[: k // 4] = 0
    return a, b


def lone_elements(m: int, n: int, k: int, device: str) -> Pair:
    a, b = torch.zeros(m, k, device=device), randn(k, n, device=device)
    a[:, k // 3] = 2.0**30
    return a, b


def ends(a_power: int, b_power: int) -> Family:
    return lambda m, n, k, device: (
        randn(m, k, device=device) * 2.0**a_power,
        randn(k, n, device=device) * 2.0**b_power,
    )


def subnormal(m: int, n: int, k: int, device: str) -> Pair:
    return randn(m, k, device=device) * 2.0**-130, randn(k, n, device=device) * 2.0**60


def relu(*shape: int, device: str) -> torch.Tensor:
    return randn(*shape, device=device).relu()


def sparse(*shape: int, device: str) -> torch.Tensor:
    return randn(*shape, device=device) * (torch.rand(*shape, device=device) < 0.05)


def outliers(m: int, n: int, k: int, device: str) -> Pair:
    a = randn(m, k, device=device)
    a[:, torch.randperm(k, device=device)[:4]] *= 100
    return a, randn(k, n, device=device)


def constant(value: float) -> Family:
    return both(lambda *shape, device: torch.full(shape, value, device=device))


MORE = "more"  # than fp16x3 alone: bf16x6 or FMA, or tiles or rows recomputed

# Name -> how to make it, and what must compute it with kernels "tensorcore" and "mma": a tier alone, MORE, or None (anything).
FAMILIES: dict[str, tuple[Family, str | None]] = {
    "randn": (both(randn), FP16X3),
    "uniform": (both(lambda *shape, device: torch.rand(*shape, device=device)), FP16X3),
    "heavy_0.5": (heavy_tailed(0.5), FP16X3),
    "heavy_1": (heavy_tailed(1.0), None),
    "heavy_2": (heavy_tailed(2.0), None),
    "heavy_4": (heavy_tailed(4.0), MORE),
    "scaled_rows": (scaled_rows, FP16X3),
    "scaled_depth": (scaled_depth, MORE),
    "picked_small": (picked_small, MORE),
    "small_behind_zeros": (small_behind_zeros, MORE),
    "lone_elements": (lone_elements, None),
    "near_overflow": (ends(115, 0), FP16X3),
    "near_underflow": (ends(-60, -60), FP16X3),
    "subnormal": (subnormal, None),
    "relu": (both(relu), None),
    "sparse": (both(sparse), None),
    "outliers": (outliers, None),
    "constant_0.1": (constant(0.1), FP16X3),
    "constant_third": (constant(1 / 3), FP16X3),
}


def alternating(k: int, device: str) -> torch.Tensor:
    return 1.0 - 2.0 * (torch.arange(k, device=device) % 2)


def offset(m: int, n: int, k: int, device: str) -> Pair:
    """Elements near 1 in both operands, with alternating signs in B."""
    b = (1 + 1e-3 * randn(k, n, device=device)) * alternating(k, device)[:, None]
    return 1 + 1e-3 * randn(m, k, device=device), b


def interleaved_pairs(m: int, n: int, k: int, device: str) -> Pair:
    a, b = randn(m, k // 2, device=device), randn(k // 2, n, device=device)
    near = [1 + 1e-3 * randn(*shape, device=device) for shape in ((m, k), (k, n))]
    return a.repeat_interleave(2, 1) * alternating(k, device) * near[0], b.repeat_interleave(2, 0) * near[1]


def waves_of_smooth(m: int, n: int, k: int, device: str) -> Pair:
    """Rows of high frequency times smooth columns."""
    at, peaks = torch.arange(k, device=device) + 0.5, torch.linspace(0, 1, n, device=device)
    waves = torch.cos(torch.pi / k * (k // 2 + torch.arange(m, device=device)[:, None] % (k // 2)) * at)
    return waves, torch.exp(-10 * (at[:, None] / k - peaks) ** 2)


def timestamps(m: int, n: int, k: int, device: str) -> Pair:
    at = 1.7e9 + 1000 * (torch.arange(k, device=device) + torch.rand(m, 1, device=device))
    return at, alternating(k, device)[:, None] * torch.ones(1, n, device=device)


def differences(m: int, n: int, k: int, device: str) -> Pair:
    """Second differences of smooth columns, by a dense matrix."""
    at = torch.arange(k, device=device)
    a = (torch.arange(m, device=device)[:, None] - at).abs()
    return torch.where(a == 0, -2.0, torch.where(a == 1, 1.0, 0.0)), waves_of_smooth(m, n, k, device)[1]


# Sums that cancel term by term: kernel "tensorcore" computes them by the tier below fp16x3.
CANCELLING: dict[str, Family] = {
    "offset": offset,
    "interleaved_pairs": interleaved_pairs,
    "waves_of_smooth": waves_of_smooth,
    "timestamps": timestamps,
    "differences": differences,
}

# Where torch's error is below these, mm32's may reach them: they are the most that splitting and truncation cost on the families.
# Constant matrices have the same rounding error in every element, which no sum averages out: at most 10 u.
NORMWISE, COMPONENTWISE, CONSTANT = 4 * UNIT, 4.0, 10.0

# The most that an error may be, as multiples of torch's normwise and componentwise errors (docs/numerics.md, "exceptions"). Where
# torch splits K, the error of its sums of one sign comes close to the bias that tensor cores leave in 64 of K; the fallback sums
# in parts of 128.
ALONE, WITH_MULTIPLY_ADDS = (1.0, 1.5), (1.5, 1.5)
OF_MMA = (1.0, 2.0)  # mma promotes every 32 of K, so it rounds twice as often as tensorcore: 1.52 was seen on ReLU data


class Computed(NamedTuple):
    """What computed a product.

    `tier`: its tier, or None for a kernel that has none. `tiles`: whether tiles were recomputed by multiply-adds. `rows`: whether
    rows, columns or single elements were."""

    tier: str | None
    tiles: bool = False
    rows: bool = False

    @property
    def alone(self) -> bool:
        """Whether tensor cores computed all of it, with nothing recomputed."""
        return self.tier not in (None, FMA) and not self.tiles and not self.rows

    def fits(self, expected: str | None) -> bool:
        """Return whether this is what `expected` demands, which is as in FAMILIES."""
        if expected is None or self.tier is None:
            return True
        return self.tier in (BF16X6, FMA) or not self.alone if expected == MORE else self == Computed(expected)


def computed(decision: Decision) -> Computed:
    if decision.tier == FMA:
        return Computed(FMA)
    alone = decision.rows | decision.columns | decision.pairs
    return Computed(decision.tier, bool(decision.tiles.any()), bool(alone.any()))


def floors(name: str) -> tuple[float, float]:
    return (CONSTANT * UNIT, CONSTANT) if name.startswith("constant") else (NORMWISE, COMPONENTWISE)


def gauges(c: torch.Tensor, truth: torch.Tensor, size: torch.Tensor) -> tuple[float, float]:
    """Return `numerics.normwise` and `numerics.componentwise`, computed on the tensors' device; below the normal range an error
    of one spacing counts as none."""
    error = (c.double() - truth).abs()
    error = torch.where(error <= 2.0**-148, torch.zeros_like(error), error)
    by_component = torch.where(error == 0, torch.zeros_like(error), error / (UNIT * size))
    norm = float(error.norm())
    return 0.0 if norm == 0 else norm / float(truth.norm()), float(by_component.max())


def stored(a: torch.Tensor, b: torch.Tensor, layout: str) -> tuple[Placed, Placed]:
    device = a.device.type
    return tuple(Placed(x, MATRIX_STORES[s], device) for x, s in zip((a, b), LAYOUTS[layout], strict=True))  # type: ignore[return-value]


def torch_fp32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    assert torch.get_float32_matmul_precision() == "highest", "torch's own fp32 is meant, not TF32"
    return torch.matmul(a, b)


def same_specials(c: torch.Tensor, other: torch.Tensor) -> bool:
    return all(bool(torch.equal(kind(c), kind(other))) for kind in (torch.isnan, torch.isposinf, torch.isneginf))


# ---------------------------------------------------------------------------------------------------------------------
# The model, on the CPU


@pytest.mark.parametrize("lower_parts", [None, 1])
@pytest.mark.parametrize("name", FAMILIES)
def test_family_in_the_model(name: str, lower_parts: int | None, seed: int) -> None:
    make, expected = FAMILIES[name]
    a, b = make(12, 14, 640, "cpu")
    c, decision = numerics.matmul(a.numpy(), b.numpy(), lower_parts=lower_parts)
    assert computed(decision).fits(expected), decision.tier
    plain = torch.from_numpy(numerics.fp32_matmul(a.numpy(), b.numpy()))
    truth, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    ours, theirs = gauges(torch.from_numpy(c), truth, size), gauges(plain, truth, size)
    assert all(x <= max(y, floor) for x, y, floor in zip(ours, theirs, floors(name), strict=True)), (ours, theirs)
    if computed(decision).alone and name != "subnormal":
        assert ours[1] <= numerics.bound(640, tier=decision.tier)


@pytest.mark.parametrize("lower_parts", [None, 1])
@pytest.mark.parametrize("k", [128, 640])
@pytest.mark.parametrize("name", CANCELLING)
def test_cancelling_family_in_the_model(name: str, k: int, lower_parts: int | None, seed: int) -> None:
    a, b = CANCELLING[name](12, 14, k, "cpu")
    c, decision = numerics.matmul(a.numpy(), b.numpy(), lower_parts=lower_parts)
    plain = torch.from_numpy(numerics.fp32_matmul(a.numpy(), b.numpy()))
    truth, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    ours, theirs = gauges(torch.from_numpy(c), truth, size), gauges(plain, truth, size)
    if name != "differences":  # its sums have three terms, and another test of the decision refuses it
        assert decision.tier == (FMA if lower_parts is None else BF16X6)
    more = 2 if decision.tier == FMA else 1  # both are multiply-adds, in different orders
    assert all(x <= max(more * y, floor) for x, y, floor in zip(ours, theirs, floors(name), strict=True)), (
        ours,
        theirs,
    )


# ---------------------------------------------------------------------------------------------------------------------
# The card


@pytest.fixture(autouse=True)
def _ieee_torch() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def counted(run: Callable[[], object], times: int = 1) -> Computed:
    """Return what computed the `times` products that `run` makes, by the card's counters; assert that it was the same for all."""
    before = Counter(mm32.stats().tiers)
    run()
    since = Counter(mm32.stats().tiers) - before
    assert set(since.values()) <= {times}, since
    tiers = [tier for tier in (*numerics.PRODUCTS, FMA) if since[tier]]
    assert len(tiers) <= 1, since
    return Computed(tiers[0] if tiers else None, bool(since["tiles recomputed"]), bool(since["rows recomputed"]))


def on_card(kernel: str, a: torch.Tensor, b: torch.Tensor, precision: str = "fp32") -> tuple[torch.Tensor, Computed]:
    """Return the result, and what computed it. Three runs must agree in every bit."""
    chosen = re.search(r"^kernel +(\w+)", mm32.explain(a, b, kernel=kernel, precision=precision), re.MULTILINE)
    assert chosen
    results: list[torch.Tensor] = []

    def run() -> None:
        results.extend(mm32.matmul(a, b, kernel=kernel, precision=precision) for _ in range(3))

    went = counted(run, 3)
    assert all(torch.equal(r.view(torch.int32), results[0].view(torch.int32)) for r in results[1:])
    assert (went.tier is not None) == (chosen[1] in planning.EMULATED_KERNELS)
    return results[0], went


def of_the_multiply(plan: Plan) -> dict[str, Any]:
    """Return what decides the order of a plan's sums, as arguments of numerics.matmul."""
    entry = f"mm32_{plan.kernel}"
    launches = [dict(step.constants) for step in plan.launches if step.entry == entry and not step.lower]
    (constants,), space = launches, plan.workspace
    assert space is not None
    assert bool(constants.get("LOWER_TIER")) == (space.lower is not None) == any(step.lower for step in plan.launches)
    return {
        "kernel": plan.kernel,
        "inline_pack": bool(constants.get("INLINE_PACK")),
        "promote": constants.get("PROMOTE"),
        "parts": space.parts,
        "lower_parts": None if space.lower is None else space.lower.parts,
    }


def planned(kernel: str, a: torch.Tensor, b: torch.Tensor, precision: str = "fp32") -> Plan:
    out = torch.empty(a.shape[0], b.shape[1], device="meta")
    return planning.plan(gemm.describe(a, b, None, out, None, precision), launch.card_of(0), kernel)


def bound_of(kernel: str, a: torch.Tensor, b: torch.Tensor, tier: str = FP16X3) -> float:
    """Return numerics.bound for the plan of a product."""
    form = of_the_multiply(planned(kernel, a, b))
    return numerics.bound(a.shape[1], kernel, tier=tier, inline_pack=form["inline_pack"], promote=form["promote"])


def judge(name: str, kernel: str, placed: tuple[Placed, Placed], expected: str | None = None) -> None:
    a, b = placed[0].view, placed[1].view
    c, went = on_card(kernel, a, b)
    assert placed[0].unchanged()
    assert placed[1].unchanged()
    assert went.fits(expected), went
    plain = torch_fp32(a, b)
    assert same_specials(c, plain)
    truth, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    ours, theirs = gauges(c, truth, size), gauges(plain, truth, size)
    floor, slack = floors(name), WITH_MULTIPLY_ADDS if not went.alone else OF_MMA if kernel == "mma" else ALONE
    no_tier = went.tier is None
    if (
        no_tier and a.shape[1] <= planning.fma.LONG_K
    ):  # an fp32 matmul of one multiply-add after another, with K not split
        floor = (0.5 * a.shape[1] ** 0.5 * UNIT, max(32.0, 2 * a.shape[1] ** 0.5))
        if name.startswith("constant"):
            floor = (a.shape[1] * UNIT, float(a.shape[1]))  # the errors all have one sign
    elif no_tier:  # sums are promoted every 128 of K, one promotion after another
        long = 0.5 * (128**0.5 + (a.shape[1] / 128) ** 0.5)
        floor = (long * UNIT, 4 * long)
    message = f"{name} {kernel} {went}: normwise {ours[0]:.3g} of torch's {theirs[0]:.3g}, gauge {ours[1]:.3g} of {theirs[1]:.3g}"
    print(message)
    assert all(x <= max(f * y, low) for x, y, f, low in zip(ours, theirs, slack, floor, strict=True)), message


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kernel", "layout"),
    [("tensorcore", x) for x in LAYOUTS]
    + [("mma", "nn"), ("mma", "tt"), ("auto", "nt"), ("auto", "tt"), ("simt", "nn"), ("simt", "tn")],
)
@pytest.mark.parametrize("name", FAMILIES)
def test_family(name: str, kernel: str, layout: str, seed: int) -> None:
    make, expected = FAMILIES[name]
    judge(name, kernel, stored(*make(768, 640, 4096, "cuda"), layout), expected)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "sizes", [(200, 136, 640), (300, 260, 200), (128, 1024, 4096), (1100, 1000, 2100), (2048, 2048, 4096)]
)
@pytest.mark.parametrize("name", CANCELLING)
def test_cancelling_family(name: str, sizes: tuple[int, int, int], seed: int) -> None:
    """Sums that cancel keep torch's error: packed beforehand or beside the multiply, inline or with short K, with a lower tier or
    without."""
    a, b = CANCELLING[name](*sizes, "cuda")
    truth, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    theirs = gauges(torch_fp32(a, b), truth, size)
    for kernel in ("auto", "tensorcore"):
        c, went = on_card(kernel, a, b)
        assert went.tier in (None, BF16X6, FMA) or name == "differences"
        more = 2 if went.tier in (None, FMA) else 1  # both are multiply-adds, in different orders
        ours = gauges(c, truth, size)
        assert all(x <= max(more * y, floor) for x, y, floor in zip(ours, theirs, floors(name), strict=True)), (
            ours,
            theirs,
        )
        packed = mm32.matmul(a, mm32.pack(b), kernel=kernel)
        assert gauges(packed, truth, size)[0] <= max(2 * theirs[0], NORMWISE)


@pytest.mark.gpu
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", [(2048, 2048, 4096), (4096, 4096, 256), (128, 11008, 4096)])
def test_two_values_of_mean_0_by_data_of_one_sign(sizes: tuple[int, int, int], transposed: bool, seed: int) -> None:
    """Packed beforehand, beside the multiply, or inline, along K and along rows: ties of lo are rounded up and down in turn. With
    ties to even, the errors of the two values would add up along K, to 85 u at the first size."""
    m, n, k = sizes
    a = torch.where(torch.rand(m, k, device="cuda") < 0.519, (0.481 / 0.519) ** 0.5, -((0.519 / 0.481) ** 0.5))
    b = 1 + 0.1 * torch.randn(k, n, device="cuda")
    a, b = (x.mT.contiguous().mT if transposed else x for x in (a, b))
    truth, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    theirs = gauges(torch_fp32(a, b), truth, size)[0]
    for right in (b, mm32.pack(b)):
        assert gauges(mm32.matmul(a, right, kernel="tensorcore"), truth, size)[0] <= max(theirs, NORMWISE)


@pytest.mark.gpu
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_cancellation_is_found_beside_a_bad_row(bad: float, seed: int) -> None:
    a, b = offset(2048, 1024, 2048, "cuda")
    a[3] = bad
    c, _ = on_card("tensorcore", a, b)
    rest = torch.arange(len(a), device="cuda") != 3
    truth, size = a[rest].double() @ b.double(), a[rest].double().abs() @ b.double().abs()
    ours, theirs = gauges(c[rest], truth, size), gauges(torch_fp32(a, b)[rest], truth, size)
    assert all(x <= max(2 * y, floor) for x, y, floor in zip(ours, theirs, floors("offset"), strict=True)), (
        ours,
        theirs,
    )


@pytest.mark.gpu
def test_three_products_have_no_steep_rows(seed: int) -> None:
    """Below K = 4 no row is recomputed for bits that it lacks, so a row's bits do not depend on other rows."""
    a, b = randn(300, 3, device="cuda"), randn(3, 260, device="cuda")
    a[5], a[6] = torch.tensor([1e3, 1e-3, 1e-7]), torch.tensor([1.0, 1e-6, 1e-7])
    alone = mm32.matmul(a[:128].contiguous(), b, kernel="tensorcore")
    assert torch.equal(mm32.matmul(a, b, kernel="tensorcore")[:128], alone)


@pytest.mark.gpu
def test_cancelling_batch(seed: int) -> None:
    pairs = [offset(256, 192, 1024, "cuda") for _ in range(3)]
    a, b = (torch.stack(x) for x in zip(*pairs, strict=True))
    for x, y in ((a, b), (a, b[:1]), (a[:1], b), (randn(3, 256, 1024, device="cuda"), b)):
        c, went = on_card("tensorcore", x, y)
        truth = x.double() @ y.double()
        theirs = float((torch_fp32(x, y) - truth).norm() / truth.norm())
        assert went.tier in (BF16X6, FMA) if x.shape[0] != 3 or x is a else went.tier == FP16X3
        assert float((c - truth).norm() / truth.norm()) <= max(2 * theirs, NORMWISE)


@pytest.mark.gpu
@pytest.mark.parametrize("k", [16384, 131072, 524288])
@pytest.mark.parametrize("kernel", KERNELS)
def test_long_sums(kernel: str, k: int, seed: int) -> None:
    a, b = torch.rand(96, k, device="cuda"), torch.rand(k, 80, device="cuda")
    judge("uniform", kernel, stored(a, b, "tt"), FP16X3 if k < LONG_K else SCALED_LO)


@pytest.mark.gpu
@pytest.mark.parametrize("k", [1, 2, 7, 16, 33, 63, 64, 65, 100, 200, 511])
def test_short_sums_keep_the_bound(k: int, seed: int) -> None:
    for make in (randn, torch.rand):
        a, b = make(300, k, device="cuda"), make(k, 260, device="cuda")
        for kernel in planning.EMULATED_KERNELS:
            c, went = on_card(kernel, a, b)
            gauge = gauges(c, a.double() @ b.double(), a.double().abs() @ b.double().abs())[1]
            assert went.tier is not None
            assert gauge <= bound_of(kernel, a, b, went.tier), kernel
        c, _ = on_card("auto", a, b)
        plain = gauges(torch_fp32(a, b), a.double() @ b.double(), a.double().abs() @ b.double().abs())
        ours = gauges(c, a.double() @ b.double(), a.double().abs() @ b.double().abs())
        assert ours[1] <= max(plain[1], 8.0)  # 8: the most that the split alone may cost


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("largest", [1, 22, 500])
def test_integers_are_exact(kernel: str, largest: int, seed: int) -> None:
    """Integers whose products and sums are below 2^22 are multiplied exactly."""
    k = min(4096, 2**22 // largest**2)
    a, b = (torch.randint(-largest, largest + 1, s, device="cuda").float() for s in ((300, k), (k, 270)))
    for layout in LAYOUTS:
        placed = stored(a, b, layout)
        c, went = on_card(kernel, placed[0].view, placed[1].view)
        assert torch.equal(c.double(), a.double() @ b.double())
        assert went.tier is None or went.alone


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("k", [5, 64, 300, 4096])
def test_one_hot_copies(kernel: str, k: int, seed: int) -> None:
    a, b = (
        (torch.rand(200, k, device="cuda") + 1) * (1 - 2 * torch.randint(0, 2, (200, k), device="cuda")),
        one_hot(150, k, "cuda"),
    )
    for x, y in ((a, b), (b.T.contiguous(), a.T.contiguous())):
        truth = x.double() @ y.double()
        c, _ = on_card(kernel, x, y)
        assert float(((c.double() - truth) / truth).abs().max()) <= 2.0**-22


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("k", [40, 700])
def test_special_values(kernel: str, value: float, k: int, seed: int) -> None:
    for side in (0, 1):
        for place in (0, 3, k // 2, k - 1):
            a, b = torch.randn(130, k, device="cuda"), torch.randn(k, 140, device="cuda")
            (a if side == 0 else b.T)[77, place] = value
            c, went = on_card(kernel, a, b)
            assert same_specials(c, torch_fp32(a, b)), (side, place)
            assert went.tier is None or went == Computed(FP16X3, rows=True), (side, place, went)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS)
def test_overflow_is_infinite_where_torchs_is(kernel: str, seed: int) -> None:
    """Magnitudes alternate between 2^120 and 2^136; sums have one sign, so no order of summation overflows before the end."""
    a = (torch.rand(130, 64, device="cuda") + 1) * torch.exp2(60 + 16.0 * (torch.arange(130, device="cuda") % 2))[
        :, None
    ]
    b = (torch.rand(64, 140, device="cuda") + 1) * 2.0**54
    a[64:] *= -1
    c, _ = on_card(kernel, a, b)
    plain = torch_fp32(a, b)
    assert 0 < int(plain.isinf().sum()) < plain.numel()
    assert same_specials(c, plain)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", planning.EMULATED_KERNELS)
def test_small_elements_that_the_scale_would_drop(kernel: str) -> None:
    """A row has 2^100 and 2^-80: scaled by the row's scale, the second would leave fp32's range altogether."""
    a, b = torch.zeros(64, 16, device="cuda"), torch.eye(16, device="cuda")
    a[:, 0], a[:, 1] = 2.0**100, 2.0**-80
    c, went = on_card(kernel, a, b)
    assert torch.equal(c, a)
    assert went.fits(MORE)


@pytest.mark.gpu
@pytest.mark.parametrize(("row", "column"), [(200, None), (None, 300), (767, 0)])
def test_only_a_bad_row_or_column_is_recomputed(row: int | None, column: int | None, seed: int) -> None:
    """With one Inf in A, or B, or both, its row and column are computed by multiply-adds, and all others keep every bit."""
    a, b = torch.randn(768, 640, device="cuda"), torch.randn(640, 500, device="cuda")
    if planning.unsupported("tensorcore", launch.card_of(0)):
        pytest.skip("not a card with wgmma")
    fast, went = on_card("tensorcore", a, b)
    assert went == Computed(FP16X3)
    anew = torch.zeros_like(fast, dtype=torch.bool)
    if row is not None:
        a[row, 7] = torch.inf
        anew[row] = True
    if column is not None:
        b[9, column] = torch.inf
        anew[:, column] = True
    c, went = on_card("tensorcore", a, b)
    assert went == Computed(FP16X3, rows=True)
    assert torch.equal(c[~anew], fast[~anew])
    assert same_specials(c, torch_fp32(a, b))
    there = torch.isfinite(c)
    assert torch.allclose(c[there].double(), (a.double() @ b.double())[there], rtol=0, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", planning.EMULATED_KERNELS)
@pytest.mark.parametrize(("bad", "expected"), [(8, Computed(FP16X3, rows=True)), (40, None), (700, Computed(FMA))])
def test_more_bad_rows_than_a_few(kernel: str, bad: int, expected: Computed | None, seed: int) -> None:
    """Up to 8 bad rows in a tile are recomputed alone; with more, the whole tile; with more than one row in 16, everything."""
    a, b = torch.randn(768, 640, device="cuda"), torch.randn(640, 500, device="cuda")
    a[:bad, 5] = torch.nan
    try:
        c, went = on_card(kernel, a, b)
    except Unplannable as error:
        pytest.skip(str(error))
    assert went == expected if expected is not None else went.fits(MORE)
    assert same_specials(c, torch_fp32(a, b))


def pair_of(kind: str, m: int, n: int, k: int) -> Pair:
    """Return operands on the card: of a family, or with all NaN in A."""
    if kind == "nan":
        return torch.full((m, k), torch.nan, device="cuda"), randn(k, n, device="cuda")
    return (CANCELLING[kind] if kind in CANCELLING else FAMILIES[kind][0])(m, n, k, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_graph_replays_either_path(kernel: str, seed: int) -> None:
    shape = (256, 192, 1024)
    kinds = ("randn", "scaled_depth", "uniform", "picked_small", "randn", "offset", "randn", "nan", "randn")
    data = [pair_of(kind, *shape) for kind in kinds]
    a, b, out = data[0][0].clone(), data[0][1].clone(), torch.empty(256, 192, device="cuda")
    eager = [on_card(kernel, x, y) for x, y in data]  # compiles the kernels before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mm32.matmul(a, b, kernel=kernel, out=out)
    for kind, (x, y), (expected, of_eager) in zip(kinds, data, eager, strict=True):
        a.copy_(x)
        b.copy_(y)
        went = counted(graph.replay)
        assert torch.equal(out.view(torch.int32), expected.view(torch.int32))
        assert went == of_eager
        if kind in FAMILIES:
            assert went.fits(FAMILIES[kind][1])


def one_bad_row(m: int, n: int, k: int, device: str) -> Pair:
    a = randn(m, k, device=device)
    a[m // 2] *= torch.exp(20 * randn(k, device=device))
    return a, randn(k, n, device=device)


COMPARED: dict[str, Family] = {
    **{name: make for name, (make, expected) in FAMILIES.items() if expected == FP16X3},
    **{name: FAMILIES[name][0] for name in ("heavy_1", "heavy_2", "heavy_4", "scaled_depth", "sparse", "outliers")},
    "one_bad_row": one_bad_row,
    **{name: CANCELLING[name] for name in ("offset", "interleaved_pairs")},
}
FORMS = {"packed": (False, 4), "inline": (True, 4), "short": (False, 1)}  # form of tensorcore -> INLINE_PACK, PROMOTE


def as_modelled(
    name: str, plan: Plan, precision: str, a: torch.Tensor, b: torch.Tensor, record: Callable[[str, object], None]
) -> None:
    """Run a plan and compare it with the model, element by element; print and record the share that agrees in every bit."""
    x, y = a.cuda(), b.cuda()
    out, run = torch.empty(a.shape[0], b.shape[1], device="cuda"), launch.Executable(plan, 0)
    went = counted(lambda: run(x, y, None, out))
    model, decision = numerics.matmul(a.numpy(), b.numpy(), precision, **of_the_multiply(plan))
    assert went == computed(decision)
    got, size = out.cpu().numpy(), numerics.exact(abs(a.numpy()), abs(b.numpy()))
    same = got.view(np.int32) == model.view(np.int32)
    apart = np.abs(got.astype(np.float64) - model)
    distance = float(np.max(np.divide(apart, UNIT * size, out=np.where(apart == 0, 0.0, np.inf), where=size > 0)))
    record("bitwise_equal", float(np.mean(same)))
    record("largest_distance_in_u", distance)
    print(f"{name}, {went}: {np.mean(same):.1%} of elements equal in every bit, at most {distance:.3g} u |A||B| apart")
    assert distance <= 2.0


@pytest.mark.gpu
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("precision", ["fp32", "bf16x6"])
@pytest.mark.parametrize("name", COMPARED)
def test_the_model_is_the_card(
    name: str,
    precision: str,
    form: str,
    parts: int,
    seed: int,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """fp16x3, with a scaled lo or not, in each form of the multiply and with a lower tier below it; and bf16x6."""
    device = launch.card_of(0)
    if planning.unsupported("tensorcore", device):
        pytest.skip("not a card with wgmma")
    if precision == "bf16x6" and form != "packed":
        pytest.skip("bf16x6 has one form")
    inline, promote = FORMS[form]
    tiles = [
        tile
        for tile in emulated.TENSOR_TILES
        if tile.products == 6 or (tile.products, tile.inline, tile.promote) == (3, inline, promote)
    ]

    def lower_tier(_: object, problem: gemm.Gemm, card: planning.Card) -> emulated.Candidate:
        return min(emulated.candidates("tensorcore", cost.Work(problem), card, products=6), key=itemgetter(0))

    monkeypatch.setattr(emulated, "TENSOR_TILES", tuple(tiles))
    monkeypatch.setattr(emulated, "SHORT_K", 2**40 if promote == 1 else 0)
    monkeypatch.setattr(emulated, "parts_to_try", lambda *_: (parts,))
    if precision == "fp32":
        monkeypatch.setattr(emulated, "_lower_tier", lower_tier)
    a, b = COMPARED[name](64, 48, 832, "cpu")
    plan = planned("tensorcore", a.cuda(), b.cuda(), precision)
    assert plan.workspace is not None
    assert plan.workspace.parts == parts
    as_modelled(name, plan, precision, a, b, record_property)


@pytest.mark.gpu
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", COMPARED)
def test_the_model_is_the_card_with_mma(
    name: str,
    parts: int,
    seed: int,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(emulated, "parts_to_try", lambda *_: (parts,))
    a, b = COMPARED[name](64, 48, 832, "cpu")
    try:
        plan = planned("mma", a.cuda(), b.cuda())
    except Unplannable as error:
        pytest.skip(str(error))
    as_modelled(name, plan, "fp32", a, b, record_property)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["heavy_4", "scaled_depth", "randn"])
def test_bf16x6_below_fp16x3(kind: str, seed: int) -> None:
    """Of a product large enough for a lower tier, that tier computes all, with the bits of precision="bf16x6" where both are
    planned alike; nothing is recomputed."""
    if planning.unsupported("tensorcore", launch.card_of(0)):
        pytest.skip("not a card with wgmma")
    a, b = FAMILIES[kind][0](2048, 2048, 4096, "cuda")
    plan, whole = planned("tensorcore", a, b), planned("tensorcore", a, b, "bf16x6")
    assert plan.workspace is not None
    assert whole.workspace is not None
    assert plan.workspace.lower is not None
    c, went = on_card("tensorcore", a, b)
    assert went == Computed(FP16X3 if kind == "randn" else BF16X6)
    six, of_six = on_card("tensorcore", a, b, "bf16x6")
    assert of_six == Computed(BF16X6)
    if kind != "randn" and plan.workspace.lower.parts == whole.workspace.parts:
        assert torch.equal(c.view(torch.int32), six.view(torch.int32))
    truth, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    assert gauges(six, truth, size)[1] <= numerics.bound(4096, tier=BF16X6)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["tensorcore", "mma", "auto"])
def test_tf32_is_of_its_class(kernel: str, seed: int) -> None:
    """The error is that of 11 significant bits: 2.94e-4 on normal data, as with torch's TF32."""
    for make, expected in ((randn, 2.94e-4), (torch.rand, 6e-5)):
        a, b = make(512, 8192, device="cuda"), make(8192, 384, device="cuda")
        c = mm32.matmul(a, b, precision="tf32", kernel=kernel)
        truth = a.double() @ b.double()
        assert float((c.double() - truth).norm() / truth.norm()) <= 1.2 * expected


def times_power(x: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """Return x * 2**exponents, by numpy: torch.ldexp computes the power by itself and is not exact on the card."""
    with np.errstate(over="ignore", under="ignore"):
        return torch.from_numpy(np.ldexp(x.cpu().numpy(), exponents.cpu().numpy().astype(np.int32))).cuda()


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(256, 384), (300, 403)])
def test_scales_of_any_size_give_the_same_bits(sizes: tuple[int, int], seed: int) -> None:
    """Rows and columns are scaled by powers of two. Where these are small, one factor undoes both scales, else two factors do."""
    m, n = sizes
    a, b = torch.randn(m, 640, device="cuda"), torch.randn(640, n, device="cuda")
    plain, _ = on_card("tensorcore", a, b)
    for reach in (20, 100):
        rows, columns = (torch.randint(-reach, reach + 1, (size,), device="cuda") for size in sizes)
        kept = (rows[:, None] + columns[None, :]).abs() < 110  # elements that neither overflow nor are subnormal
        scaled, _ = on_card("tensorcore", times_power(a, rows[:, None]), times_power(b, columns[None, :]))
        expected = times_power(plain, rows[:, None] + columns[None, :])
        assert torch.equal(scaled[kept], expected[kept])


@pytest.mark.gpu
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    "tile",
    emulated.TENSOR_TILES,
    ids=lambda t: f"{t.n}-{'inline' if t.inline else 'packed'}-{t.products}-{t.promote}",
)
def test_every_form_of_the_multiply(
    tile: emulated.Tile, parts: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tile and many waves, groups of few tile rows, batches, parts of K of unequal lengths. Each runs twice, the second time
    in the workspace that the first left, with the same bits."""
    device = launch.card_of(0)
    if planning.unsupported("tensorcore", device):
        pytest.skip("not a card with wgmma")
    monkeypatch.setattr(emulated, "TENSOR_TILES", (tile,))
    monkeypatch.setattr(emulated, "SHORT_K", 2**40 if tile.promote == 1 else 0)
    monkeypatch.setattr(emulated, "parts_to_try", lambda *_: (parts,))
    monkeypatch.setattr(emulated, "_lower_tier", lambda *_: None)
    precision = {1: "tf32", 3: "fp32", 6: "bf16x6"}[tile.products]
    for batch, m, k, n in (
        ((), 128, 832, 256),
        ((), 1153, 840, 4200),
        ((), 2309, 1000, 1797),
        ((5,), 300, 832, 300),
        ((140,), 96, 840, 64),
    ):
        a, b = torch.randn(*batch, m, k, device="cuda"), torch.randn(*batch, k, n, device="cuda")
        out = torch.empty(*batch, m, n, device="cuda")
        problem = gemm.describe(a, b, None, out, None, precision)
        plan = planning.plan(problem, device, "tensorcore")
        assert plan.workspace is not None
        assert plan.workspace.parts == parts
        run = launch.Executable(plan, 0)
        truth = a.double() @ b.double()
        seen = []
        for _ in range(2):
            run(a, b, None, out)
            seen.append(out.clone())
        error = float((out.double() - truth).norm() / truth.norm())
        assert error <= (3.5e-4 if tile.products == 1 else 4e-7), (batch, m, k, n)
        assert torch.equal(*seen)


@pytest.mark.gpu
@pytest.mark.parametrize("k_blocks", [17, 25, 26, 27, 65])
def test_a_multiply_that_stops_early_ends(k_blocks: int, seed: int) -> None:
    """The lower tier computes all of these data, in tiles that end some K-blocks after a look at the decision: all warps of the
    first tier's multiply must then stop, or all go on."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("only tensorcore has a lower tier")
    k = 64 * k_blocks
    a = (torch.rand(4096, k, device="cuda") - 0.5) * torch.exp(4 * torch.randn(4096, k, device="cuda"))
    b = (torch.rand(k, 8192, device="cuda") - 0.5) * torch.exp(4 * torch.randn(k, 8192, device="cuda"))
    first = mm32.matmul(a, b, kernel="tensorcore")
    before = mm32.stats().tiers
    for _ in range(20):
        assert torch.equal(mm32.matmul(a, b, kernel="tensorcore"), first)
    assert mm32.stats().tiers["bf16x6"] - before["bf16x6"] == 20
