"""What an emulated product's kernels observe, decide and recompute, run by the simulator on the host and compared with the
model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
import torch

from mm32 import gemm, numerics
from mm32.numerics import BF16X6, FMA, FP16X3, SCALED_LO, constants, row_scales
from mm32.numerics import decision as deciding
from mm32.plan import H200, Card, Plan, cost, emulated, packing
from mm32.plan import plan as planned
from support import simulated, simulated_decision

pytestmark = pytest.mark.skipif(simulated.COMPILER is None, reason="no C++ compiler")
Array = np.ndarray
Draw = Callable[[np.random.Generator, int, int], tuple[Array, Array]]  # (generator, rows of A, columns of B)
K = 832


def plan_of(asked: gemm.Gemm, monkeypatch: pytest.MonkeyPatch, card: Card = H200, early: bool = True) -> Plan:
    """Return a plan with a separate packing and a lower tier. `early`: all may be left to that tier before anything is packed."""

    def lower_tier(_: object, problem: gemm.Gemm, __: object) -> emulated.Candidate:
        return min(emulated.candidates("tensorcore", cost.Work(problem), card, products=6), key=itemgetter(0))

    tiles = tuple(tile for tile in emulated.TENSOR_TILES if not tile.inline)
    monkeypatch.setattr(emulated, "TENSOR_TILES", tiles)
    monkeypatch.setattr(emulated, "_lower_tier", lower_tier)
    monkeypatch.setattr(emulated, "parts_to_try", lambda *_: (1,))
    plan = planned(asked, card, "tensorcore")
    space = plan.workspace
    if early or space is None or space.lower is None:
        return plan
    return replace(plan, workspace=replace(space, early=0, lower=replace(space.lower, early=0)))


def noise(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def log_normal(rng: np.random.Generator, sigma: float, *shape: int) -> Array:
    return ((rng.random(shape) - 0.5) * np.exp(sigma * rng.standard_normal(shape))).astype(np.float32)


def one_hot(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    a = np.zeros((m, K), np.float32)
    a[np.arange(m), rng.integers(0, K, m)] = 1
    return a, noise(rng, K, n)


def bad_rows(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    """Noise with a row with a NaN, one with an Inf, a steep column, and a row of zeros."""
    a, b = noise(rng, m, K), noise(rng, K, n)
    a[3, 700], a[9, 5], a[11] = np.nan, np.inf, 0
    b[:, 7] = log_normal(rng, 12, K)
    return a, b


def outliers(of_a: int, of_b: int) -> Draw:
    """Noise with rows and columns in which one or two elements make the whole sum."""

    def draw(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
        a, b = noise(rng, m, K), noise(rng, K, n)
        a[20 : 20 + of_a] = log_normal(rng, 18, of_a, K)
        b[:, 5 : 5 + of_b] = log_normal(rng, 18, K, of_b)
        return a, b

    return draw


def triangles(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    """Triangular matrices, whose first rows and columns have few elements."""
    return np.tril(noise(rng, m, K)), np.triu(noise(rng, K, n))


def apart(count: int) -> Draw:
    """Most rows are noise. In `count` rows of A and some columns of B small elements decide, and fp16x3 keeps only some pairs."""

    def draw(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
        a, b = noise(rng, m, K), noise(rng, K, n)
        a[5 : 5 + count, : K // 2] *= 2.0**-40
        b[K // 2 :, 20:30] *= 2.0**-40
        return a, b

    return draw


def few_elements(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    """Noise with rows and columns of three elements, which are recomputed together."""
    a, b = noise(rng, m, K), noise(rng, K, n)
    a[3:8, 3:], b[3:, 40:44] = 0, 0
    return a, b


def soft(rng: np.random.Generator, m: int) -> Array:
    """Softmax outputs in which few elements decide."""
    x = np.exp(6 * rng.standard_normal((m, K)))
    return (x / x.sum(1, keepdims=True)).astype(np.float32)


def cauchy(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    return rng.standard_cauchy((m, K)).astype(np.float32), rng.standard_cauchy((K, n)).astype(np.float32)


def soft_by_relu(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    """The largest elements meet zeros in half of the pairs."""
    return soft(rng, m), np.maximum(noise(rng, K, n), 0)


def large_channels(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    """Large columns of A that no sample contains, within the first 320 of K: there some rows are looked at further, in any
    layout."""
    a, b = noise(rng, m, K), noise(rng, K, n)
    a[:, np.setdiff1d(np.arange(320), row_scales.sampled(K))[20::80]] *= 300
    return a, b


def tiny(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    """Elements too small for bf16x6. Where only they meet the other operand's large elements, some sums are large all the same,
    and some are not."""
    a, b = noise(rng, m, K), noise(rng, K, n)
    a[::5, : K // 2] *= 2.0**-40  # small elements decide one pair in 25: fp16x3 is tried, and cannot keep that
    b[K // 2 :, ::5] *= 2.0**-40
    for row, power in ((4, -60), (5, -80), (70, -118), (71, -119)):
        a[row] = 2.0**power * noise(rng, K)
        a[row, 17] = 1
    b[17, 3:20] = 0
    return a, b


def powers(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    """Rows of powers. Few powers of small numbers are large enough for fp16x3, and mm32_fallback would have to compute their
    rows."""
    return rng.uniform(-1, 1, (m, 1)).astype(np.float32) ** np.arange(K, dtype=np.float32), noise(rng, K, n)


def rbf_kernels(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    """RBF kernels of points that are mostly far apart: in some pairs each row's large elements meet small ones."""
    x, y, z = (rng.standard_normal((count, 8)) for count in (m, K, n))
    a, b = (np.exp(-((u[:, None] - v) ** 2).sum(-1) / 2) for u, v in ((x, y), (y, z)))
    return a.astype(np.float32), b.astype(np.float32)


def some_nan(rng: np.random.Generator, m: int, n: int) -> tuple[Array, Array]:
    """Rows that become NaN at the start of K, rows that do so at its end, tiles of only such rows, and ordinary rows between
    them."""
    a, b = noise(rng, m, K), noise(rng, K, n)
    a[10:30, -1], a[40:60, 0], a[128:, 3] = np.nan, np.inf, np.nan
    b[0, ::2] = 0
    return a, b


# Name -> how to draw it, its tier, and whether that is taken early; None: whatever the model says.
CASES: dict[str, tuple[Draw, str | None, bool | None]] = {
    "noise": (lambda r, m, n: (noise(r, m, K), noise(r, K, n)), FP16X3, False),
    "sigma 1": (lambda r, m, n: (log_normal(r, 1, m, K), log_normal(r, 1, K, n)), SCALED_LO, False),
    "sigma 2": (lambda r, m, n: (log_normal(r, 2, m, K), log_normal(r, 2, K, n)), None, False),
    "sigma 4": (lambda r, m, n: (log_normal(r, 4, m, K), log_normal(r, 4, K, n)), BF16X6, True),
    "one-hot": (one_hot, BF16X6, True),
    "bad rows": (bad_rows, None, False),
    "few outliers": (outliers(2, 1), SCALED_LO, False),
    "many outliers": (outliers(12, 1), None, None),
    "triangles": (triangles, None, False),
    "pairs": (apart(8), SCALED_LO, False),
    "more pairs than a tile may have": (apart(15), SCALED_LO, False),
    "few elements": (few_elements, None, False),
    "softmax": (lambda r, m, n: (soft(r, m), noise(r, K, n)), SCALED_LO, False),
    "softmax by ReLU": (soft_by_relu, None, None),
    "Cauchy": (cauchy, None, False),
    "large channels": (large_channels, SCALED_LO, False),
    "tiny": (tiny, BF16X6, None),
    "powers": (powers, BF16X6, True),
    "RBF kernels": (rbf_kernels, None, None),
    "all NaN": (lambda r, m, n: (np.full((m, K), np.nan, np.float32), noise(r, K, n)), FMA, False),
    "some NaN": (some_nan, FMA, False),
}


# With a C as small as here, these would be left to bf16x6 at once, so they may not be early.
LATE = ("pairs", "more pairs than a tile may have")
QUICK = ("some NaN", "bad rows", "many outliers", "pairs", "large channels", "powers")


@pytest.mark.parametrize("layout", ["nn", pytest.param("tt", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_kernels_do_what_the_model_does(
    name: str, layout: str, libraries: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, tier, early = CASES[name]
    a, b = draw(np.random.default_rng(seed), 136, 72)
    if layout == "tt":
        a, b = np.asfortranarray(a), np.asfortranarray(b)
    asked = gemm.from_layout(layout, 136, 72, K)
    may_be_early = name not in LATE
    plan = plan_of(asked, monkeypatch, early=may_be_early)
    went = simulated_decision.run(plan, asked, a, b, libraries)
    expected = deciding.decide(a, b, lower_tier=True, early=may_be_early)
    assert went.tier == expected.tier
    found = [row_scales.scales(x) for x in (a, b.T)]
    gives_up = may_be_early and deciding.gives_up((a, b.T), *found)
    assert went.early == gives_up
    assert early in (None, gives_up)
    if tier is not None:
        assert went.tier == tier
    for seen, places, model in zip(went.sampled, went.largest_at, found, strict=True):
        as_sampled(seen, places, model)
    if expected.tier == FMA:  # computes tile by tile, and stops in a tile once all of its sums are NaN
        with np.errstate(invalid="ignore"):
            truth, size = a.astype(np.float64) @ b.astype(np.float64), np.abs(a).astype(np.float64) @ np.abs(b)
        number = np.isfinite(truth)
        assert np.array_equal(went.c[~number], truth[~number].astype(np.float32), equal_nan=True)
        assert bool((np.abs(went.c[number] - truth[number]) <= 4 * 2.0**-24 * size[number]).all())
        return
    c = numerics.recompute(numerics.product(a, b, expected.tier), a, b, expected)
    assert np.array_equal(went.c.view(np.uint32), c.view(np.uint32)) or np.array_equal(went.c, c, equal_nan=True)


@pytest.mark.parametrize("cluster", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize(("m", "n"), [pytest.param(136, 72, marks=pytest.mark.slow), (138, 70)])
def test_lines_of_operands_that_lie_along_their_rows(
    m: int, n: int, cluster: int, libraries: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and columns are recomputed alone, also for views whose lines end within a group of four, and with K shared by a
    cluster."""
    for module, name in ((emulated, "FALLBACK_SHARES"), (numerics, "SHARED_LINE")):
        monkeypatch.setattr(module, name, K if cluster > 1 else K + 1)
    a, b = few_elements(np.random.default_rng(seed), m, n)
    with torch.device("meta"):
        views = torch.empty(K, 140)[:, :m].mT, torch.empty(K, 72)[:, :n]
        asked = gemm.describe(*views, None, torch.empty(m, n), None)
    plan = plan_of(asked, monkeypatch)
    assert dict(plan.launches[0].constants)["A_LOAD"] == dict(plan.launches[0].constants)["B_LOAD"] == 0
    assert plan.launches[-1].cluster == cluster
    went = simulated_decision.run(plan, asked, a, b, libraries)
    expected = deciding.decide(a, b, lower_tier=True)
    assert expected.rows.sum() > 2
    c = numerics.recompute(numerics.product(a, b, expected.tier), a, b, expected)
    assert np.array_equal(went.c.view(np.uint32), c.view(np.uint32))


def as_sampled(found: Array, places: Array, model: row_scales.Scales) -> None:
    """Assert that what mm32_scale has written about rows is what the model finds."""
    assert np.array_equal(places, model.largest_at)
    exponent, flags = found["scale"].astype(np.uint8).view(np.int8), found["scale"] >> 24
    assert np.array_equal(exponent, model.exponent)
    assert np.array_equal((found["scale"] >> 16).astype(np.uint8).view(np.int8), model.level)
    assert np.array_equal(flags & 1 > 0, model.exact)
    assert np.array_equal(flags & 4 > 0, model.unseen)
    assert np.array_equal(flags & 8 > 0, model.meager)
    assert np.array_equal(flags & 16 > 0, model.outlier)
    assert np.array_equal((found["scale"] >> 8).astype(np.uint8), model.sampled_small)
    bits = np.unpackbits(found["big"].view(np.uint8).reshape(len(found), 2, 16), axis=2, bitorder="little")
    assert np.array_equal(bits[:, :, : model.big.shape[2]].astype(bool), model.big.swapaxes(0, 1))


@pytest.mark.slow
def test_long_k_has_a_scaled_lo(libraries: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    for k, tier in ((constants.LONG_K - 64, FP16X3), (constants.LONG_K, SCALED_LO)):
        a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((5, k), (k, 4)))
        asked = gemm.from_layout("nn", 5, 4, k)
        went = simulated_decision.run(plan_of(asked, monkeypatch), asked, a, b, libraries)
        assert went.tier == tier == numerics.matmul(a, b, lower_parts=1)[1].tier


@pytest.mark.parametrize("layout", ["tn", *(pytest.param(x, marks=pytest.mark.slow) for x in ("nn", "nt"))])
def test_a_cluster_reads_rows_whole(layout: str, libraries: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its blocks reads a part of K, and a row's largest element is found from all parts."""
    rng = np.random.default_rng(seed)
    m, n, k = 40, 33, 2000 if layout == "nn" else 2003
    monkeypatch.setattr(packing, "CLUSTERED_K", 2000)
    a, b = log_normal(rng, 3, m, k), log_normal(rng, 3, k, n)
    asked = gemm.from_layout(layout, m, n, k)
    plan = plan_of(asked, monkeypatch)
    assert plan.launches[0].cluster == 8
    went = simulated_decision.run(plan, asked, a, b, libraries)
    for found, places, x in zip(went.sampled, went.largest_at, (a, b.T), strict=True):
        model = row_scales.scales(x)
        assert model.exact.all()
        as_sampled(found, places, model)
    assert numerics.componentwise(went.c, a, b) <= 20
