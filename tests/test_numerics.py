"""The numerics model: its parts against slow or exact arithmetic, its errors against the proved bound and the card's figures,
and the accept test against inputs made to fool it."""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mm32
from mm32 import numerics
from mm32.numerics import Array, componentwise, exact, normwise

KERNELS = Path(mm32.__file__).parent / "cuda" / "kernels"
AMPERE = {"kept_bits": 24, "width": 8}


def f32(x: object) -> Array:
    return np.asarray(x, np.float32)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, np.float32)


def packed(a: Array, b: Array, products: int = 3) -> tuple[numerics.Packed, numerics.Packed]:
    return numerics.pack(a, products), numerics.pack(np.ascontiguousarray(b.T), products)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(list(request.node.nodeid.encode()))


def test_constants_are_the_kernels() -> None:
    text = (KERNELS / "emulated/panels.cuh").read_text()
    for name in ("BLOCK_K", "SAMPLES", "TARGET", "TARGET_EXACT"):
        found = re.search(rf"\b{name} = (\d+)", text)
        assert found, name
        assert int(found[1]) == getattr(numerics, name), name
    assert "PRODUCTS == 3 ? 0.125f : 0x1p-14f" in text
    assert numerics.SMALL == {3: 0.125, 1: 2.0**-14}
    assert "LIMIT = 65504.f" in text


# ---------------------------------------------------------------------------------------------------------------------
# The split


@given(st.floats(-65504, 65504, width=32))
@settings(max_examples=2000)
def test_split_keeps_what_it_says(x: float) -> None:
    hi, lo = numerics.split(f32(x))
    lost = abs(Fraction(x) - Fraction(float(hi)) - Fraction(float(lo)))
    assert lost <= max(Fraction(2) ** -25, Fraction(2) ** -23 * abs(Fraction(x)))
    if abs(x) >= 2**-2:
        assert lost <= Fraction(2) ** -23 * abs(Fraction(x))
    if abs(x) >= 2**-3:
        assert lost <= Fraction(2) ** -22 * abs(Fraction(x))
    assert abs(lo) <= max(2.0**-11 * abs(x), 2.0**-25)


def test_split_bounds_are_reached() -> None:
    """1 + 2^-10 - 4095 * 2^-23 loses 2^-23, with a lo that is 2^-11 of it; squared with itself, 8 u."""
    x = f32(1 + 2.0**-10 - 4095 * 2.0**-23)
    hi, lo = numerics.split(x)
    assert float(hi + lo) - float(x) == -(2.0**-23)
    assert float(lo) == -(2.0**-11)
    a = np.full((1, 64), x)
    assert componentwise(numerics.matmul(a, a.T.copy())[0], a, a.T) == pytest.approx(8, abs=0.02)


@given(st.integers(1, 254), st.integers(0, 2**23 - 1), st.integers(1, 300))
def test_scaling_is_exact_and_brings_the_largest_to_the_target(power: int, fraction: int, k: int) -> None:
    x = np.uint32((power << 23) + fraction).view(np.float32)
    exponent = int(numerics.exponents(np.full((1, k), x))[0])
    scaled = float(x) * 2.0**exponent
    target = numerics.target(k)
    assert 2.0**target <= scaled < 2.0 ** (target + 1) or exponent == 127


def test_scale_of_zeros_subnormals_and_special_values() -> None:
    tiny = 2.0**-149
    rows = f32([[0, 0], [tiny, 0], [np.inf, 1], [np.nan, 2], [-np.inf, np.nan]])
    assert numerics.exponents(rows).tolist() == [0, 127, 14, 13, 0]


@pytest.mark.parametrize("k", [1, 127, 128, 129, 200, 512, 8192, 100003])
def test_the_sample(k: int) -> None:
    places = numerics.sampled(k)
    assert len(set(places.tolist())) == len(places) == min(k, numerics.SAMPLES)
    assert 0 <= places.min() <= places.max() < k


# ---------------------------------------------------------------------------------------------------------------------
# Tensor cores


def by_fractions(acc: float, a: list[float], b: list[float], kept: int) -> float:
    """The same instruction in rational numbers, element by element."""

    def exponent(x: float) -> int:
        return int(np.frexp(x)[1]) - 1

    terms = [
        (Fraction(x) * Fraction(y), max(exponent(x), -14) + max(exponent(y), -14))
        for x, y in zip(a, b, strict=True)
        if x * y
    ]
    terms += [(Fraction(acc), exponent(acc))] if acc else []
    if not terms:
        return 0.0
    quantum = Fraction(2) ** (max(e for _, e in terms) - kept)
    total = sum((int(value / quantum) for value, _ in terms), 0) * quantum
    if total == 0:
        return 0.0
    last = Fraction(2) ** (exponent(float(total)) - 23)
    return float(int(total / last) * last)


def test_an_instruction(rng: np.random.Generator) -> None:
    a = (normal(rng, 7, 16) * np.exp2(rng.integers(-18, 8, (7, 16)))).astype(np.float16).astype(np.float64)
    b = (normal(rng, 5, 16) * np.exp2(rng.integers(-18, 8, (5, 16)))).astype(np.float16).astype(np.float64)
    a[0], a[1, ::2], b[0, 5:] = 0, 0, 0
    acc = (normal(rng, 7, 5) * np.exp2(rng.integers(-10, 10, (7, 5)))).astype(np.float32).astype(np.float64)
    acc[2] = 0
    for kept, width in ((23, 16), (24, 8), (25, 16)):
        x, y = a[:, :width], b[:, :width]
        got = numerics.tensor_core(acc, x, y, kept)
        expected = [[by_fractions(acc[i, j], x[i].tolist(), y[j].tolist(), kept) for j in range(5)] for i in range(7)]
        assert got.tolist() == expected


def test_truncation_bias_is_there_without_promotion_and_gone_with_it(rng: np.random.Generator) -> None:
    """Measured on an H200 with K=8192: 6.3e-5 without promotion, 6.0e-7 every 128, 2.4e-7 every 64."""
    a, b = rng.random((24, 8192), np.float32), rng.random((8192, 24), np.float32)
    errors = {every: normwise(numerics.multiply(*packed(a, b), promoted_every=every), a, b) for every in (0, 4, 2, 1)}
    assert errors[0] == pytest.approx(6.3e-5, rel=0.05)
    assert errors[4] == pytest.approx(1.5e-6, rel=0.1)
    assert errors[2] == pytest.approx(6.0e-7, rel=0.1)
    assert errors[1] == pytest.approx(2.36e-7, rel=0.15)
    c = numerics.multiply(*packed(a, b), promoted_every=0)
    assert np.all(c < exact(a, b))


def test_promoting_every_32_makes_up_for_what_ampere_keeps_less(rng: np.random.Generator) -> None:
    """K=8192, one sign: 24 bits and 8 products at a time leave twice Hopper's bias in 64 of K, and no more than it in 32."""
    a, b = rng.random((24, 8192), np.float32), rng.random((8192, 24), np.float32)

    def error(**options: int) -> float:
        return normwise(numerics.multiply(*packed(a, b), **options), a, b)

    assert error(block=64, **AMPERE) == pytest.approx(4.6e-7, rel=0.1)
    assert error(block=32, **AMPERE) == pytest.approx(2.7e-7, rel=0.1)
    assert error(block=32) == pytest.approx(2.3e-7, rel=0.1)


def test_the_order_of_inline_packing_is_the_kernels() -> None:
    text = (KERNELS / "emulated/inline_pack.cuh").read_text()
    found = re.search(r"place p of 64 holds k = (.+?) \+ \((p % 8 < 4) \? (\d+) : (\d+)\),", text)
    assert found
    base, condition, yes, no = found.groups()
    order = [eval(base.replace("/", "//") + f" + ({yes} if {condition} else {no})", {"p": p}) for p in range(64)]
    assert order == list(numerics.INLINE_ORDER)
    assert sorted(order) == list(range(64))


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("block", [64, 16])
def test_an_order_of_k_is_that_of_permuted_operands(parts: int, block: int, rng: np.random.Generator) -> None:
    """Within each 64 of K, the last of which is not full: the same bits as with columns of A and rows of B moved by hand."""
    a, b = normal(rng, 6, 1100), normal(rng, 1100, 5)
    sides = packed(a, b)
    places = [64 * i + p for i in range(18) for p in numerics.INLINE_ORDER]

    def moved(x: numerics.Packed) -> numerics.Packed:
        hi, lo = (np.pad(plane, ((0, 0), (0, 52)))[:, places] for plane in (x.hi, x.lo))
        return dataclasses.replace(x, hi=hi, lo=lo)

    options = {"block": block, "parts": parts}
    inline = numerics.multiply(*sides, order=numerics.INLINE_ORDER, **options)
    assert np.array_equal(inline, numerics.multiply(*map(moved, sides), **options))
    plain = numerics.multiply(*sides, **options)
    assert not np.array_equal(inline, plain)
    assert np.max(np.abs(inline - plain) / (numerics.UNIT * exact(np.abs(a), np.abs(b)))) <= 2.0


@pytest.mark.parametrize("inline_pack", [False, True])
@pytest.mark.parametrize("k", [1, 16, 33, 64, 100, 200])
def test_promoting_every_16_and_either_order_keep_the_bound(
    k: int, inline_pack: bool, rng: np.random.Generator
) -> None:
    for make in (normal, lambda rng, *shape: rng.random(shape, np.float32)):
        a, b = make(rng, 24, k), make(rng, k, 24)
        for promote in (1, 4):
            c, recomputed = numerics.matmul(a, b, inline_pack=inline_pack, promote=promote)
            assert not recomputed
            assert componentwise(c, a, b) <= numerics.bound(k, inline_pack=inline_pack, promote=promote)
            block = numerics.multiply(
                *packed(a, b), block=16 * promote, order=numerics.INLINE_ORDER if inline_pack else range(64)
            )
            assert np.array_equal(c, block)
    assert np.array_equal(numerics.matmul(a, b, promote=4)[0], numerics.matmul(a, b)[0])
    assert np.array_equal(numerics.matmul(a, b, promote=2)[0], numerics.matmul(a, b, kernel="mma")[0])


def test_promoting_every_16_leaves_less_of_the_bias(rng: np.random.Generator) -> None:
    """Short K, one sign: what is left is the bias of tensor cores (the reason for PROMOTE = 1 there)."""
    a, b = rng.random((32, 128), np.float32), rng.random((128, 32), np.float32)
    every = {promote: normwise(numerics.matmul(a, b, inline_pack=True, promote=promote)[0], a, b) for promote in (1, 4)}
    assert every[1] < 0.6 * every[4]


# ---------------------------------------------------------------------------------------------------------------------
# Errors


def test_figures_of_the_card(rng: np.random.Generator) -> None:
    """The H200's, for M=2048 N=4096; a maximum over fewer elements is smaller."""
    a, b = normal(rng, 32, 8192), normal(rng, 8192, 32)
    c, recomputed = numerics.matmul(a, b)
    assert not recomputed
    assert normwise(c, a, b) == pytest.approx(2.45e-7, rel=0.15)
    assert componentwise(c, a, b) <= 1.1
    assert normwise(numerics.fp32_matmul(a, b), a, b) == pytest.approx(1.62e-6, rel=0.15)
    assert normwise(numerics.multiply(*packed(a, b), promoted_every=0), a, b) == pytest.approx(2.9e-5, rel=0.15)
    assert normwise(numerics.matmul(a, b, "tf32")[0], a, b) == pytest.approx(2.94e-4, rel=0.05)
    a, b = rng.random((32, 8192), np.float32), rng.random((8192, 32), np.float32)
    c, recomputed = numerics.matmul(a, b)
    assert not recomputed
    assert normwise(c, a, b) == pytest.approx(2.36e-7, rel=0.15)
    assert 5 < componentwise(c, a, b) < 16.5
    assert normwise(numerics.fp32_matmul(a, b), a, b) == pytest.approx(1.19e-6, rel=0.15)


def test_bound_is_below_that_of_any_fp32_matmul_from_64_on() -> None:
    assert all(numerics.bound(k) <= k for k in range(64, 5000))
    assert not any(numerics.bound(k) <= k for k in range(1, 32))
    assert all(numerics.bound(k, "mma", **AMPERE) <= k for k in range(64, 5000))
    assert not numerics.bound(64, "tensorcore", **AMPERE) <= 64


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_integers_are_exact(parts: int, rng: np.random.Generator) -> None:
    a, b = f32(rng.integers(-40, 41, (17, 1100))), f32(rng.integers(-40, 41, (1100, 9)))
    c, recomputed = numerics.matmul(a, b, parts=parts)
    assert not recomputed
    assert np.array_equal(c, exact(a, b))
    a, b = f32(rng.integers(-3000, 3001, (5, 100))), f32(rng.integers(-13, 14, (100, 6)))
    assert np.array_equal(numerics.matmul(a, b, parts=1)[0], exact(a, b))


@pytest.mark.parametrize("k", [1, 5, 64, 300])
def test_one_hot_copies(k: int, rng: np.random.Generator) -> None:
    a, b = f32(rng.uniform(1, 2, (40, k))), f32(np.eye(k))[:, rng.integers(0, k, 30)]
    packed = numerics.pack(a), numerics.pack(f32(b.T))
    for c in (
        numerics.matmul(a, b)[0],
        numerics.multiply(*packed),
    ):  # one product a sum: recomputed, and good enough if it were not
        assert np.max(np.abs(c - exact(a, b)) / exact(a, b)) <= 2.0**-22


def test_scale_is_undone_across_the_whole_range(rng: np.random.Generator) -> None:
    """Rows and columns by powers of two: the same bits, shifted, as long as they stay normal numbers."""
    a, b = normal(rng, 12, 200), normal(rng, 200, 13)
    plain = numerics.matmul(a, b)[0].astype(np.float64)
    rows, columns = np.exp2(rng.integers(-55, 56, (12, 1))), np.exp2(rng.integers(-55, 56, (1, 13)))
    c, recomputed = numerics.matmul(f32(a * rows), f32(b * columns))
    assert not recomputed
    assert np.array_equal(c, plain * rows * columns)
    low, _ = numerics.matmul(f32(a * 2.0**-110), f32(b * 2.0**-110))
    high, _ = numerics.matmul(f32(np.abs(a) * 2.0**100), f32(np.abs(b) * 2.0**100))
    assert not low.any()
    assert np.isposinf(high).all()


# ---------------------------------------------------------------------------------------------------------------------
# The accept test


def test_zeros_are_no_counterweight() -> None:
    """A row's one large element meets a zero, its small one carries the result; all other elements are zeros."""
    a, b = np.zeros((2, 512), np.float32), np.ones((512, 2), np.float32)
    a[:, 32], a[:, 33], b[32] = 1, 2.0**-40, 0
    assert componentwise(numerics.multiply(*packed(a, b)), a, b) == 2.0**24  # all of it is lost
    c, recomputed = numerics.matmul(a, b)
    assert recomputed
    assert np.array_equal(c, exact(a, b))


def test_elements_that_the_scale_sends_to_zero_are_small_ones() -> None:
    a, b = np.zeros((1, 16), np.float32), f32(np.eye(16))
    a[0, :2] = 2.0**100, 2.0**-80
    assert numerics.pack(a).small.tolist() == [1]
    c, recomputed = numerics.matmul(a, b)
    assert recomputed
    assert np.array_equal(c, a)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 17, 299])
def test_special_values_take_the_fallback(value: float, place: int, rng: np.random.Generator) -> None:
    for side in (0, 1):
        a, b = normal(rng, 4, 300), normal(rng, 300, 5)
        (a if side == 0 else b.T)[2, place] = value
        c, recomputed = numerics.matmul(a, b)
        assert recomputed
        line = c[2] if side == 0 else c[:, 2]
        assert not np.isfinite(line).any()
        assert np.isfinite(c).sum() == c.size - line.size


def test_only_tiles_with_a_pair_that_does_not_fit_are_recomputed(rng: np.random.Generator) -> None:
    a, b = normal(rng, 20, 300), normal(rng, 300, 25)
    fast, recomputed = numerics.matmul(a, b)
    assert not recomputed
    a[9, 5] = np.inf
    c, recomputed = numerics.matmul(a, b, tile=(8, 16))
    assert recomputed
    assert not numerics.fits(*packed(a, b))[9].any()
    assert numerics.fits(*packed(a, b)).sum() == 19 * 25
    plain = numerics.fp32_matmul(a, b)
    assert np.array_equal(c[8:16], plain[8:16], equal_nan=True)
    assert np.array_equal(c[:8], fast[:8])
    assert np.array_equal(c[16:], fast[16:])


def adversary(rng: np.random.Generator, rows: int, k: int) -> Array:
    """Rows with structure that a count can overlook: magnitudes of a wide or narrow range, constants at the worst of the
    split, blocks and sprinkles of zeros, a few elements alone."""
    x = rng.uniform(1, 2, (rows, k)) * rng.choice([-1, 1], (rows, k) if rng.random() < 0.5 else (1, 1))
    if rng.random() < 0.3:
        x = np.full((rows, k), 1 + 2.0**-10 - 4095 * 2.0**-23)
    powers = rng.integers(-int(rng.choice([1, 6, 12, 16, 24, 45])), 1, (rows, k))
    x = x * np.exp2(powers * (rng.random((rows, k)) < rng.choice([0.01, 0.1, 0.5, 1])))
    for _ in range(rng.integers(0, 3)):
        start, stop = np.sort(rng.integers(0, k + 1, 2))
        x[:, start:stop] *= rng.choice([0, 0, 2.0**-12, 2.0**-16, 2.0**-20, 2.0**-40])
    if rng.random() < 0.4:
        x = x * (rng.random((rows, k)) < rng.choice([0.02, 0.2, 0.5]))
    return f32(x)


def test_nothing_that_fits_passes_the_bound(rng: np.random.Generator) -> None:
    fitted, worst = 0, 0.0
    for _ in range(1500):
        k = int(rng.choice([1, 3, 16, 40, 64, 80, 130, 400]))
        a, b = adversary(rng, 3, k), np.ascontiguousarray(adversary(rng, 3, k).T)
        sides = packed(a, b)
        if numerics.fits(*sides).all():
            fitted += 1
            error = componentwise(numerics.multiply(*sides), a, b)
            assert error <= numerics.bound(k), (k, error)
            by_mma = componentwise(numerics.multiply(*sides, block=32, **AMPERE), a, b)
            assert by_mma <= numerics.bound(k, "mma", **AMPERE), (k, by_mma)
            promote = (1, 4)[fitted % 2]
            inline = componentwise(numerics.multiply(*sides, block=16 * promote, order=numerics.INLINE_ORDER), a, b)
            assert inline <= numerics.bound(k, inline_pack=True, promote=promote), (k, promote, inline)
            worst = max(worst, error / numerics.bound(k))
    assert 300 < fitted < 1400
    assert worst > 0.2


def test_truncation_at_its_worst_stays_below_the_bound() -> None:
    """One product of the block at 1, all others just under the last place that is kept."""
    a, b = np.full((1, 64), 2.0**-13 * (1 - 2.0**-11), np.float32), np.full((64, 1), 2.0**-12, np.float32)
    a[0, 0], b[0, 0] = 1.0, 1.0
    sides = packed(a, b)
    error = componentwise(numerics.multiply(*sides), a, b)
    assert 30 < error <= numerics.bound(64)
    assert error < 64
    error = componentwise(numerics.multiply(*sides, block=32), a, b)
    assert 15 < error <= numerics.bound(64, "mma")
    b[1:] *= 2  # Ampere's last place
    error = componentwise(numerics.multiply(*packed(a, b), block=32, **AMPERE), a, b)
    assert 30 < error <= numerics.bound(64, "mma", **AMPERE)


# ---------------------------------------------------------------------------------------------------------------------
# The gauges


def test_gauges() -> None:
    a, b = f32([[3, 4]]), f32([[1, 0], [1, 0]])
    c = exact(a, b)
    assert normwise(f32(c), a, b) == componentwise(f32(c), a, b) == 0
    off = f32(c + np.array([[7 * 2.0**-20, 0]]))
    assert normwise(off, a, b) == 2.0**-20
    assert componentwise(off, a, b) == 16
    assert componentwise(f32([[7, 1e-30]]), a, b) == np.inf
    for gauge in (normwise, componentwise):
        assert not gauge(f32([[np.nan, 0]]), a, b) <= 1e30
        assert not gauge(f32([[np.inf, 0]]), a, b) <= 1e30
        assert gauge(f32([[0.0]]), f32([[0.0]]), f32([[1.0]])) == 0
