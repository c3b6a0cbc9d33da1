"""The numerics model: its parts against slow or exact arithmetic, its errors against the proved bound and the card's figures, and
its decisions for inputs whose tier is known and for inputs made to fool the accept test."""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mm32
from mm32 import numerics
from mm32.bench import families
from mm32.cuda import launch
from mm32.numerics import (
    BF16X6,
    FMA,
    FP16X3,
    SCALED_LO,
    Array,
    accept,
    componentwise,
    constants,
    exact,
    normwise,
    row_scales,
)
from mm32.numerics import cancellation as cancelling
from mm32.numerics import decision as deciding
from mm32.plan import emulated, fma

KERNELS = Path(mm32.__file__).parent / "cuda" / "kernels" / "emulated"
AMPERE = {"kept_bits": 24, "width": 8}


def f32(x: object) -> Array:
    return np.asarray(x, np.float32)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, np.float32)


def packed(a: Array, b: Array, products: int = 3, scaled_lo: bool = False) -> tuple[numerics.Packed, numerics.Packed]:
    return numerics.pack(a, products, scaled_lo), numerics.pack(np.ascontiguousarray(b.T), products, scaled_lo)


def accepted(a: Array, b: Array, tier: str = FP16X3) -> np.ndarray:
    """Return (M, N): the pairs of a row and a column that a tier's accept test accepts, with neither recomputed alone."""
    products, scaled_lo = numerics.PRODUCTS[tier], tier == SCALED_LO
    test = accept.accept_test(a.shape[1], products, scaled_lo)
    x, y = (accept.stats(rows, row_scales.scales(rows), products, scaled_lo) for rows in (a, b.T.copy()))
    pairs = test.accepts(x, y) if tier != BF16X6 else True
    return pairs & ~test.alone(x)[:, None] & ~test.alone(y)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(list(request.node.nodeid.encode()))


def constexpr(*sources: str) -> dict[str, float]:
    """Return the constexpr numbers of kernel sources, by name."""
    found: dict[str, float] = {}
    for source in sources:
        for line in re.findall(
            r"^constexpr (?:int|float|unsigned) (.+?);", (KERNELS / source).read_text(), re.MULTILINE
        ):
            for name, value in re.findall(r"(\w+) = ([-\w.]+)(?=,|$)", line):
                if re.fullmatch(r"-?\d+", value):
                    found[name] = int(value)
                elif re.fullmatch(r"0x1p-?\d+f|\d+\.\d*f", value):
                    found[name] = float.fromhex(value[:-1]) if value.startswith("0x") else float(value[:-1])
    return found


def test_constants_are_the_kernels() -> None:
    common = constexpr("stats.cuh", "panels.cuh", "pack.cu")
    names = (
        "SAMPLES", "TARGET", "TARGET_EXACT", "WIDE", "VERY_WIDE", "SPARSE", "FEWEST_SAMPLES", "ROOM", "LEVEL", "LEVELS",
        "LOST", "FEW_BIG",
        "LONG_K",
        "LARGEST_FP16", "LARGEST_BF16X6", "SMALLEST_BF16X6", "READY_ROWS", "ROW_GROUPS", "LISTED",
    )  # fmt: skip
    assert {name: common[name] for name in names} == {name: getattr(constants, name) for name in names}
    assert (common["BLOCK_K"], common["LO_SHIFT"]) == (numerics.BLOCK_K, numerics.LO_SHIFT)
    decide = constexpr("decide.cuh")
    assert decide["TRIED_M"] == decide["TRIED_N"] == constants.TRIED
    assert (decide["PARTNERS"], decide["TRIED_TILES"]) == (constants.PARTNERS, constants.TRIED_TILES)
    assert decide["MOST_PAIRS"] == constants.TRIED_PAIRS
    assert (decide["ALONE_IN"], decide["ALONE_AT_LEAST"]) == (constants.ALONE_IN, constants.ALONE_AT_LEAST)
    assert constexpr("cancel.cuh")["CANCELS"] == cancelling.CANCELS
    fallback = constexpr("fallback.cu")
    assert (fallback["MOST_ALONE"], fallback["MOST_PAIRS"]) == (constants.MOST_ALONE, constants.MOST_PAIRS)
    tile = fma.ACCURATE_TILE
    assert tile.threads == numerics.LINE_LANES * fallback["OTHERS"]
    assert (emulated.FALLBACK_CLUSTER, emulated.FALLBACK_SHARES) == (numerics.LINE_SHARES, numerics.SHARED_LINE)
    assert tile.k * tile.promote == numerics.FMA_PROMOTED
    order = (KERNELS.parent / "common/tile_order.cuh").read_text()
    assert f"TILE_GROUP = {constants.TILE_GROUP};" in order


def test_formulas_are_the_kernels() -> None:
    """Constants that are expressions in a kernel are compared as text."""
    panels, hi_lo, pack, decide, cancel = (
        (KERNELS / name).read_text() for name in ("panels.cuh", "hi_lo.cuh", "pack.cu", "decide.cuh", "cancel.cuh")
    )
    for source, text in (
        (
            hi_lo,
            "PLANES == 3 ? (127 + SMALLEST_EXPONENT) << 7 : PLANES == 2 && !scaled_lo ? (15 - 3) << 10 : (15 - 14) << 10",
        ),
        (pack, "const int exponent = min(max(wanted, -126), 127);"),
        (panels, "ALLOWED = PLANES == 2 ? 8.f : 65536.f"),
        (panels, "return scaled_lo ? 0x1p-11f : 1.f;"),
        (panels, "return PLANES == 2 ? (int)min(8LL, k / 4) : 0;"),
        (panels, "LIMIT = PLANES == 3 ? LARGEST_BF16X6 : LARGEST_FP16"),
        (panels, "RUN = SAMPLES / 8;"),
        (pack, "return depth <= SAMPLES ? i * RUN : i * ((depth - RUN) / 7) / RUN * RUN;"),
        (decide, "many(for_fma, 16, 0)"),
        (decide, "many(decision.alone, ALONE_IN, ALONE_AT_LEAST)"),
        (decide, "* 2654435761u + 977u) %"),
        (decide, "return rejected >= PARTNERS / 2;"),
        (cancel, "__ballot_sync(~0u, below == 3)"),
        (cancel, "least > 0x1p-100f && least < 0x1p120f ? least : 0.f"),
    ):
        assert text in source, text
    assert [accept.small_below(3), accept.small_below(3, True), accept.small_below(1)] == [0.125, 2**-14, 2**-14]
    assert accept.small_below(6) == 2.0**-50


def test_tiers_are_those_that_are_counted() -> None:
    assert {*numerics.PRODUCTS, FMA} <= set(launch.TIERS)


# ---------------------------------------------------------------------------------------------------------------------
# The split


@given(st.floats(-65504, 65504, width=32))
@settings(max_examples=2000)
def test_split_keeps_what_it_says(x: float) -> None:
    hi, lo = (float(part) for part in numerics.split(f32(x)))
    lost = abs(Fraction(x) - Fraction(float(hi)) - Fraction(float(lo)))
    assert lost <= max(Fraction(2) ** -25, Fraction(2) ** -23 * abs(Fraction(x)))
    if abs(x) >= 2**-2:
        assert lost <= Fraction(2) ** -23 * abs(Fraction(x))
    if abs(x) >= 2**-3:
        assert lost <= Fraction(2) ** -22 * abs(Fraction(x))
    assert abs(lo) <= max(2.0**-11 * abs(x), 2.0**-25)


@given(st.floats(-65504, 65504, width=32))
@settings(max_examples=2000)
def test_a_scaled_lo_keeps_what_it_says(x: float) -> None:
    hi, lo = (float(part) for part in numerics.split(f32(x), 3, scaled_lo=True))
    lost = abs(Fraction(x) - Fraction(hi) - Fraction(lo) / 2**11)
    assert lost <= max(Fraction(2) ** -36 * Fraction(5, 4), Fraction(2) ** -23 * abs(Fraction(x)))
    assert abs(lo) <= max(abs(x), 2.0**-14) * (1 + 2**-11)


@pytest.mark.parametrize("scaled_lo", [False, True])
def test_ties_of_lo_are_rounded_up_and_down_in_turn_and_nothing_else_changes(
    scaled_lo: bool, rng: np.random.Generator
) -> None:
    x = f32(np.ldexp(rng.uniform(1, 2, 5000), rng.integers(-14, 11, 5000)))
    hi, lo = numerics.split(np.repeat(x, 8).reshape(-1, 8), 3, scaled_lo)
    d = (x - hi[:, 0]) * (2.0**11 if scaled_lo else 1)
    down = d.astype(np.float16).astype(np.float64)
    down = np.where(np.abs(down) > np.abs(d), np.nextafter(np.float16(down), np.float16(0)).astype(np.float64), down)
    up = np.copysign(np.nextafter(np.float16(np.abs(down)), np.float16(np.inf)).astype(np.float64), d)
    tie = (d != down) & (np.abs(d - down) == np.abs(up - d))
    assert 0.05 < tie.mean() < 0.5
    nearest = np.float16(d).astype(np.float64)
    assert np.array_equal(lo[~tie], np.repeat(nearest[~tie], 8).reshape(-1, 8))
    assert np.array_equal(lo[tie], np.stack([up, down, down, up] * 2, 1)[tie])


@pytest.mark.parametrize("kind", ["two values", "genotypes", "quantised"])
def test_few_values_of_mean_0_by_data_of_one_sign(kind: str, rng: np.random.Generator) -> None:
    """With ties to even, each of the few values has the same error wherever it is: 20 to 50 u at this K, and torch 7 to 10 u."""
    m, k, n = 48, 1024, 48
    b = 1 + 0.1 * rng.standard_normal((k, n))
    if kind == "two values":
        a = np.where(rng.random((m, k)) < 0.519, np.sqrt(0.481 / 0.519), -np.sqrt(0.519 / 0.481))
    elif kind == "genotypes":
        counts = rng.binomial(2, rng.uniform(0.05, 0.5, (m, 1)), (m, k))
        a = (counts - counts.mean(1, keepdims=True)) / counts.std(1, keepdims=True)
    else:
        a = (rng.integers(0, 8, (m, k)) - 3.3) * 0.1 * rng.lognormal(0, 0.2, (m, 1))
    a, b = f32(a), f32(b)
    plain = normwise(numerics.fp32_matmul(a, b), a, b) / numerics.UNIT
    for tier in ("fp16x3", "fp16x3 with a scaled lo"):
        assert normwise(numerics.product(a, b, tier), a, b) / numerics.UNIT <= max(4.0, plain), tier


def test_a_scaled_lo_keeps_what_is_2_to_the_24_below_the_largest(rng: np.random.Generator) -> None:
    """In rows that were read whole, it keeps 22 bits of such elements, while an unscaled lo keeps no more than 15."""
    a = f32(np.where(np.arange(512) % 2, 2.0**-24, 1) * rng.uniform(1, 2, (4, 512)))
    assert row_scales.scales(a).exact.all()
    lost = {}
    for scaled_lo in (False, True):
        of = numerics.pack(a, 3, scaled_lo)
        hi, lo = of.planes
        kept = np.ldexp(hi + lo * (2.0**-11 if scaled_lo else 1), -of.exponent[:, None])
        lost[scaled_lo] = np.max((np.abs(kept - a) / a)[:, 1::2])
    assert lost[True] <= 2.0**-22
    assert lost[False] > 2.0**-16


@given(st.floats(-(2.0**50), 2.0**50, width=32).filter(lambda x: abs(x) >= 2.0**-110))
@settings(max_examples=2000)
def test_three_bf16_numbers_keep_everything(x: float) -> None:
    parts = [float(part) for part in numerics.split(f32(x), 6)]
    assert sum(map(Fraction, parts)) == Fraction(x)
    assert abs(parts[1]) <= 2.0**-8 * abs(x)
    assert abs(parts[2]) <= 2.0**-17 * abs(x)
    assert all(np.float32(part).view(np.uint32) & 0xFFFF == 0 for part in parts)


def test_bf16_rounds_to_nearest_even() -> None:
    x = f32([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, -1 - 2.0**-8])
    assert numerics.bf16(x).tolist() == [1, 1 + 2.0**-6, 1 + 2.0**-7, -1]


def test_split_bounds_are_reached() -> None:
    """1 + 2^-10 - 4095 * 2^-23 gains or loses 2^-23, as its place decides, with a lo of 2^-11 of it; and so does its counterpart.
    Multiplied by themselves they have an error of 8 u."""
    below, above = f32(1 + 2.0**-10 - 4095 * 2.0**-23), f32(1 + 2.0**-10 + 4095 * 2.0**-23)
    a = np.tile(f32([below, above, above, below]), 16)[None]
    hi, lo = numerics.split(a)
    assert np.all(hi + lo - a == -(2.0**-23))
    assert np.all(np.abs(np.abs(lo) - 2.0**-11) <= 2.0**-22)
    assert componentwise(numerics.product(a, a.T.copy(), FP16X3), a, a.T) == pytest.approx(8, abs=0.02)


@given(st.integers(1, 254), st.integers(0, 2**23 - 1), st.integers(1, 300), st.booleans())
def test_scaling_is_exact_and_brings_the_largest_to_the_target(
    power: int, fraction: int, k: int, scaled_lo: bool
) -> None:
    x = np.uint32((power << 23) + fraction).view(np.float32)
    found = row_scales.scales(np.full((1, k), x))
    exponent = int(found.exponents(scaled_lo)[0])
    target = constants.TARGET_EXACT if k <= constants.SAMPLES else constants.TARGET - constants.ROOM * scaled_lo
    scaled = float(x) * 2.0**exponent
    most = 127 - (constants.ROOM if scaled_lo and k > constants.SAMPLES else 0)
    assert 2.0**target <= scaled < 2.0 ** (target + 1) or exponent == most
    assert found.levels(scaled_lo)[0] == np.frexp(scaled)[1] - 1 - constants.LEVEL
    assert found.big.all()
    assert not found.wide


def test_scale_of_zeros_subnormals_and_special_values() -> None:
    tiny = 2.0**-149
    rows = f32([[0, 0], [tiny, 0], [np.inf, 1], [np.nan, 2], [-np.inf, np.nan]])
    assert row_scales.scales(rows).exponent.tolist() == [0, 127, 14, 13, 0]


@pytest.mark.parametrize("k", [1, 127, 128, 129, 200, 512, 8192, 100003])
def test_the_sample(k: int) -> None:
    places = row_scales.sampled(k)
    assert len(set(places.tolist())) == len(places) == min(k, constants.SAMPLES)
    assert places.min() == 0
    assert k - 64 <= places.max() < k


def test_rows_that_span_much_are_read_whole_with_their_neighbours(rng: np.random.Generator) -> None:
    """32 rows are read at a time. Then the largest element is scaled to 2^14, though no sample has it, and the call has a scaled
    lo."""
    rows = normal(rng, 80, 1000)
    rows[40, ::2] *= 2.0**-20
    rows[50, 9] = 1e6 if 9 not in row_scales.sampled(1000) else np.nan
    rows[50, 20] = 2.0**15
    assert 20 not in row_scales.sampled(1000)
    found = row_scales.scales(rows)
    assert found.wide
    assert found.exact.tolist() == [False] * 32 + [True] * 32 + [False] * 16
    scaled = np.ldexp(np.abs(np.where(np.isnan(rows[50]), 0, rows[50])).max(), found.exponent[50])
    assert 2.0**14 <= scaled < 2.0**15
    assert found.level[50] < found.level[41] - 10
    assert not row_scales.scales(rows[:32]).wide
    rows = normal(rng, 80, 1000)
    rows[7, 20] = 2.0**15  # no row around it is read whole, so only the accept test sees it
    assert not row_scales.scales(rows).wide


@pytest.mark.parametrize(("count", "wide"), [(40, False), (20, True), (0, False)])
def test_sparse_rows_ask_for_a_scaled_lo(count: int, wide: bool) -> None:
    rows = np.zeros((3, 300), np.float32)
    rows[1, row_scales.sampled(300)[:count]] = 1
    assert row_scales.scales(rows).wide == wide


def test_long_k_has_a_scaled_lo(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small elements are counted over all of K, but compared with only 128 samples: without a scaled lo, normal data would be
    recomputed one by one."""
    a, b = normal(rng, 12, 2**20), normal(rng, 2**20, 8)
    decision = deciding.decide(a, b, lower_tier=True)
    assert decision.tier == numerics.SCALED_LO
    assert not decision.recomputed.any()
    assert not row_scales.scales(a[:, : constants.LONG_K - 1]).wide
    monkeypatch.setattr(row_scales, "LONG_K", 2**30)
    assert deciding.decide(a, b, lower_tier=True).tier == numerics.BF16X6


# ---------------------------------------------------------------------------------------------------------------------
# Tensor cores


def by_fractions(acc: float, a: list[float], b: list[float], kept: int, least: int) -> float:
    """Compute one element of the same instruction in rational numbers."""

    def exponent(x: float) -> int:
        return int(np.frexp(x)[1]) - 1

    terms = [
        (Fraction(x) * Fraction(y), max(exponent(x), least) + max(exponent(y), least))
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
    last = Fraction(2) ** max(exponent(float(total)) - 23, -149)
    return float(int(total / last) * last)


@pytest.mark.parametrize(("bf16", "power"), [(False, 0), (True, 0), (True, -60)])
def test_an_instruction(bf16: bool, power: int, rng: np.random.Generator) -> None:
    def numbers(rows: int) -> numerics.Double:
        x = f32(normal(rng, rows, 16) * np.exp2(rng.integers(-18, 8, (rows, 16)) + power))
        return (numerics.bf16(x) if bf16 else x.astype(np.float16)).astype(np.float64)

    a, b = numbers(7), numbers(5)
    a[0], a[1, ::2], b[0, 5:] = 0, 0, 0
    acc = f32(normal(rng, 7, 5) * np.exp2(rng.integers(-10, 10, (7, 5)) + 2.0 * power)).astype(np.float64)
    acc[2] = 0
    least = numerics.LEAST_EXPONENT[6 if bf16 else 3]
    for kept, width in ((23, 16), (24, 8), (25, 16)):
        x, y = a[:, :width], b[:, :width]
        got = numerics.tensor_core(acc, x, y, kept, least)
        expected = [
            [by_fractions(acc[i, j], x[i].tolist(), y[j].tolist(), kept, least) for j in range(5)] for i in range(7)
        ]
        assert got.tolist() == expected


def test_the_order_of_the_products_is_the_kernels() -> None:
    """The order is lo*hi, mid*mid, hi*lo, mid*hi, hi*mid, hi*hi, as tensorcore.cu issues them."""
    text = (KERNELS / "tensorcore.cu").read_text()
    six = text[text.index("#if MM32_PRODUCTS == 6") : text.index("if constexpr (SCALED_LO)")]
    parts = ["hi", "mid", "lo"]
    issued = re.findall(r"multiply(?:_block)?\(part, a_(\w+), b_(\w+),", six[: six.index("#else")])
    assert [(parts.index(x), parts.index(y)) for x, y in issued] == list(numerics.ORDER[6])


def one_of_each_scheme(
    rng: np.random.Generator, k: int
) -> list[tuple[Array, Array, tuple[numerics.Packed, numerics.Packed]]]:
    a, b = normal(rng, 5, k), normal(rng, k, 6)
    return [(a, b, packed(a, b, 3)), (a, b, packed(a, b, 3, scaled_lo=True)), (a, b, packed(a, b, 6))]


def test_the_multiply_by_another_way(rng: np.random.Generator) -> None:
    """The test writes out one K-block of each scheme: which planes are multiplied, in which order, where sums are promoted."""
    for _, _, (x, y) in one_of_each_scheme(rng, 64):
        names = ("hi", "lo") if x.products == 3 else ("hi", "mid", "lo")
        a, b = dict(zip(names, x.planes, strict=True)), dict(zip(names, y.planes, strict=True))
        least = numerics.LEAST_EXPONENT[x.products]

        def add(acc, planes, k, a=a, b=b, least=least):  # type: ignore[no-untyped-def]
            here = slice(16 * k, 16 * k + 16)
            return numerics.tensor_core(acc, a[planes[0]][:, here], b[planes[1]][:, here], 25, least)

        cross = [("lo", "hi"), ("hi", "lo")]
        if x.products == 6:
            cross = [("lo", "hi"), ("mid", "mid"), ("hi", "lo"), ("mid", "hi"), ("hi", "mid")]
        acc = np.zeros((5, 6))
        for planes in cross:
            for k in range(4):
                acc = add(acc, planes, k)
        acc = acc * 2.0**-11 if x.scaled_lo else acc
        small = acc
        for k in range(4):
            acc = add(acc, ("hi", "hi"), k)
        undo = -(x.exponent[:, None] + y.exponent)
        assert np.array_equal(numerics.multiply(x, y), f32(np.ldexp(acc, undo)))
        if not x.scaled_lo:
            continue
        # With promotion every 16 of K, all products with lo are in the first sum.
        total = f32(add(small, ("hi", "hi"), 0))
        for k in range(1, 4):
            total = total + f32(add(np.zeros((5, 6)), ("hi", "hi"), k))
        assert np.array_equal(numerics.multiply(x, y, block=16), f32(np.ldexp(total.astype(np.float64), undo)))


def test_schemes_differ_by_less_than_their_errors(rng: np.random.Generator) -> None:
    for k in (64, 300):
        for a, b, sides in one_of_each_scheme(rng, k):
            for options in ({}, {"block": 32, "cross_block": 32}, {"block": 16}, {"parts": 2}):
                error = componentwise(numerics.multiply(*sides, **options), a, b)  # type: ignore[arg-type]
                assert error <= (1.5 if sides[0].products == 6 else 3.0)


def test_truncation_bias_is_there_without_promotion_and_gone_with_it(rng: np.random.Generator) -> None:
    """Measured on an H200 with K=8192: 6.3e-5 without promotion, 6.0e-7 every 128, 2.4e-7 every 64."""
    a, b = rng.random((24, 8192), np.float32), rng.random((8192, 24), np.float32)
    errors = {every: normwise(numerics.multiply(*packed(a, b), blocks_promoted=every), a, b) for every in (0, 4, 2, 1)}
    assert errors[0] == pytest.approx(6.3e-5, rel=0.05)
    assert errors[4] == pytest.approx(1.5e-6, rel=0.1)
    assert errors[2] == pytest.approx(6.0e-7, rel=0.1)
    assert errors[1] == pytest.approx(2.36e-7, rel=0.15)
    c = numerics.multiply(*packed(a, b), blocks_promoted=0)
    assert np.all(c < exact(a, b))


def test_promoting_every_32_makes_up_for_what_ampere_keeps_less(rng: np.random.Generator) -> None:
    """With K=8192 and one sign, 24 bits and 8 products at a time leave twice Hopper's bias in 64 of K, and about
    Hopper's bias in 32."""
    a, b = rng.random((24, 8192), np.float32), rng.random((8192, 24), np.float32)

    def error(**options: int) -> float:
        return normwise(numerics.multiply(*packed(a, b), **options), a, b)

    assert error(block=64, **AMPERE) == pytest.approx(4.6e-7, rel=0.1)
    assert error(block=32, **AMPERE) == pytest.approx(2.7e-7, rel=0.1)
    assert error(block=32) == pytest.approx(2.3e-7, rel=0.1)


def test_the_order_of_inline_packing_is_the_kernels() -> None:
    text = (KERNELS / "inline_pack.cuh").read_text()
    found = re.search(r"place p of 64 holds k = (.+?) \+ \((p % 8 < 4) \? (\d+) : (\d+)\),", text)
    assert found
    base, condition, yes, no = found.groups()
    order = [eval(base.replace("/", "//") + f" + ({yes} if {condition} else {no})", {"p": p}) for p in range(64)]
    assert order == list(numerics.INLINE_ORDER)
    assert sorted(order) == list(range(64))


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("block", [64, 16])
def test_an_order_of_k_is_that_of_permuted_operands(parts: int, block: int, rng: np.random.Generator) -> None:
    """An order within each 64 of K, of which the last is not full, gives the same bits as moving columns of A and rows of B."""
    a, b = normal(rng, 6, 1100), normal(rng, 1100, 5)
    sides = packed(a, b)
    places = [64 * i + p for i in range(18) for p in numerics.INLINE_ORDER]

    def moved(x: numerics.Packed) -> numerics.Packed:
        return dataclasses.replace(x, planes=tuple(np.pad(plane, ((0, 0), (0, 52)))[:, places] for plane in x.planes))

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
            c, decision = numerics.matmul(a, b, inline_pack=inline_pack, promote=promote)
            assert not decision.recomputed.any()
            assert componentwise(c, a, b) <= numerics.bound(k, inline_pack=inline_pack, promote=promote)
            block = numerics.multiply(
                *packed(a, b), block=16 * promote, order=numerics.INLINE_ORDER if inline_pack else range(64)
            )
            assert np.array_equal(c, block)
    assert np.array_equal(numerics.matmul(a, b, promote=4)[0], numerics.matmul(a, b)[0])
    assert np.array_equal(numerics.matmul(a, b, promote=2)[0], numerics.matmul(a, b, kernel="mma")[0])


def test_promoting_every_16_leaves_less_of_the_bias(rng: np.random.Generator) -> None:
    """With a short K and one sign, the remaining error is the bias of tensor cores (the reason for PROMOTE = 1 there)."""
    a, b = rng.random((32, 128), np.float32), rng.random((128, 32), np.float32)
    every = {promote: normwise(numerics.matmul(a, b, inline_pack=True, promote=promote)[0], a, b) for promote in (1, 4)}
    assert every[1] < 0.6 * every[4]


# ---------------------------------------------------------------------------------------------------------------------
# Errors


def test_figures_of_the_card(rng: np.random.Generator) -> None:
    """The figures are the H200's for M=2048 N=4096; a maximum over fewer elements, as here, is smaller."""
    a, b = normal(rng, 32, 8192), normal(rng, 8192, 32)
    c, decision = numerics.matmul(a, b)
    assert not decision.recomputed.any()
    assert normwise(c, a, b) == pytest.approx(2.45e-7, rel=0.15)
    assert componentwise(c, a, b) <= 1.1
    assert normwise(numerics.fp32_matmul(a, b), a, b) == pytest.approx(1.62e-6, rel=0.15)
    assert normwise(numerics.multiply(*packed(a, b), blocks_promoted=0), a, b) == pytest.approx(2.9e-5, rel=0.15)
    assert normwise(numerics.matmul(a, b, "tf32")[0], a, b) == pytest.approx(2.94e-4, rel=0.05)
    a, b = rng.random((32, 8192), np.float32), rng.random((8192, 32), np.float32)
    c, decision = numerics.matmul(a, b)
    assert not decision.recomputed.any()
    assert normwise(c, a, b) == pytest.approx(2.36e-7, rel=0.15)
    assert 5 < componentwise(c, a, b) < 16.5
    assert normwise(numerics.fp32_matmul(a, b), a, b) == pytest.approx(1.19e-6, rel=0.15)


@pytest.mark.parametrize(("tier", "phi"), [(SCALED_LO, 1.0), (BF16X6, 1.0), (BF16X6, 4.0)])
@pytest.mark.parametrize("k", [1, 16, 100, 700])
def test_wide_data_keep_the_bounds(tier: str, phi: float, k: int, rng: np.random.Generator) -> None:
    a, b = (f32(rng.uniform(-0.5, 0.5, s) * np.exp(phi * rng.standard_normal(s))) for s in ((24, k), (k, 24)))
    for parts in (1, 2):
        error = componentwise(numerics.product(a, b, tier, parts=parts if k > 64 else 1), a, b)
        assert error <= numerics.bound(k, tier=tier)
        assert error <= 24
    assert numerics.bound(k, tier=BF16X6) < numerics.bound(k)
    assert numerics.bound(4096, tier=BF16X6) < numerics.bound(4096) < numerics.bound(4096, tier=SCALED_LO)


def test_cancelling_sums_need_24_bits(rng: np.random.Generator) -> None:
    """For 1 + 1e-3 N against alternating signs, little is left of fp16x3's 22 bits, but more of bf16x6's 24 than of fp32's
    sums."""
    a = f32(1 + 1e-3 * normal(rng, 24, 1024))
    b = f32((1 + 1e-3 * normal(rng, 1024, 24)) * np.where(np.arange(1024) % 2, -1, 1)[:, None])
    split, whole = numerics.product(a, b, FP16X3), numerics.product(a, b, BF16X6)
    plain = normwise(numerics.fp32_matmul(a, b), a, b)
    assert normwise(split, a, b) > 2 * plain
    assert normwise(whole, a, b) < plain / 5
    assert numerics.matmul(a, b, lower_parts=1)[1].tier == BF16X6


@pytest.mark.parametrize("k", [20, 128, 129, 700])
@pytest.mark.parametrize("parts", [1, 3])
def test_cancellation_is_told_from_random_signs(k: int, parts: int, rng: np.random.Generator) -> None:
    a, b = f32(normal(rng, 40, k)), f32(normal(rng, k, 30))
    signs = f32(np.where(np.arange(k) % 2, -1, 1)[:, None])
    assert not cancelling.cancels(a, b, parts)
    assert not cancelling.cancels(abs(a), abs(b), parts)
    assert not cancelling.cancels(a * f32(np.geomspace(1, 1e-6, k)), b, parts)
    cancelled = f32(1 + 0.05 * a), signs * f32(1 + 0.05 * b)
    assert cancelling.cancels(*cancelled, parts)
    for scale in (2.0**-28, 2.0**28):
        assert cancelling.cancels(f32(scale * cancelled[0]), cancelled[1], parts)
    assert not cancelling.cancels(f32(2.0**70 * cancelled[0]), cancelled[1], parts)  # because squares overflow
    assert cancelling.least_power(np.zeros_like(a), b) == 0
    assert not cancelling.cancels(a * np.nan, b, parts)
    cancelled[0][3], cancelled[0][5] = np.nan, np.inf  # they say nothing about other rows
    assert cancelling.cancels(*cancelled, parts)


def test_bound_is_below_that_of_any_fp32_matmul_from_64_on() -> None:
    assert all(numerics.bound(k) <= k for k in range(64, 5000))
    assert not any(numerics.bound(k) <= k for k in range(1, 32))
    assert all(numerics.bound(k, "mma", **AMPERE) <= k for k in range(64, 5000))
    assert not numerics.bound(64, "tensorcore", **AMPERE) <= 64


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_integers_are_exact(parts: int, rng: np.random.Generator) -> None:
    a, b = f32(rng.integers(-40, 41, (17, 1100))), f32(rng.integers(-40, 41, (1100, 9)))
    c, decision = numerics.matmul(a, b, parts=parts)
    assert not decision.recomputed.any()
    assert np.array_equal(c, exact(a, b))
    a, b = f32(rng.integers(-3000, 3001, (5, 100))), f32(rng.integers(-13, 14, (100, 6)))
    assert np.array_equal(numerics.matmul(a, b, parts=1)[0], exact(a, b))


@pytest.mark.parametrize("k", [1, 5, 64, 300])
def test_one_hot_copies(k: int, rng: np.random.Generator) -> None:
    a, b = f32(rng.uniform(1, 2, (40, k))), f32(np.eye(k))[:, rng.integers(0, k, 30)]
    for tier, most in ((FP16X3, 2.0**-22), (SCALED_LO, 2.0**-22), (BF16X6, 0), (FMA, 0)):
        assert np.max(np.abs(numerics.product(a, b, tier) - exact(a, b)) / exact(a, b)) <= most
    for precision in ("fp32", "bf16x6"):
        c, decision = numerics.matmul(a, b, precision, lower_parts=1)
        assert decision.tier == BF16X6 or k < 8
        assert np.array_equal(c, exact(a, b)) or k < 8  # fp16x3 must have at most K / 4 products


def test_scale_is_undone_across_the_whole_range(rng: np.random.Generator) -> None:
    """Rows and columns times powers of two give the same bits, shifted, as long as the results stay normal numbers."""
    a, b = normal(rng, 12, 200), normal(rng, 200, 13)
    plain = numerics.matmul(a, b)[0].astype(np.float64)
    rows, columns = np.exp2(rng.integers(-55, 56, (12, 1))), np.exp2(rng.integers(-55, 56, (1, 13)))
    c, decision = numerics.matmul(f32(a * rows), f32(b * columns))
    assert not decision.recomputed.any()
    assert np.array_equal(c, plain * rows * columns)
    low, _ = numerics.matmul(f32(a * 2.0**-110), f32(b * 2.0**-110))
    high, _ = numerics.matmul(f32(np.abs(a) * 2.0**100), f32(np.abs(b) * 2.0**100))
    assert not low.any()
    assert np.isposinf(high).all()


# ---------------------------------------------------------------------------------------------------------------------
# The accept test, and what is decided


def test_zeros_are_no_counterweight() -> None:
    """A row's only large element meets a zero, and its small one makes the result; all other elements are zeros."""
    a, b = np.zeros((2, 512), np.float32), np.ones((512, 2), np.float32)
    a[:, 32], a[:, 33], b[32] = 1, 2.0**-40, 0
    assert componentwise(numerics.multiply(*packed(a, b)), a, b) == 2.0**24  # all of it is lost
    assert not accepted(a, b).any()
    c, decision = numerics.matmul(a, b)
    assert decision.recomputed.all()
    assert np.array_equal(c, exact(a, b))


def test_elements_that_the_scale_sends_to_zero_are_small_ones() -> None:
    a, b = np.zeros((1, 16), np.float32), f32(np.eye(16))
    a[0, :2] = 2.0**100, 2.0**-80
    assert accept.stats(a, row_scales.scales(a)).small.tolist() == [1]
    c, decision = numerics.matmul(a, b)
    assert decision.recomputed.all()
    assert np.array_equal(c, a)


def test_rows_of_zeros_lose_nothing(rng: np.random.Generator) -> None:
    a, b = normal(rng, 40, 300), normal(rng, 300, 30)
    a[3], a[7, :290], b[:, 4] = 0, 0, 0
    fits = accepted(a, b, SCALED_LO)
    assert fits[3].all()
    assert fits[:, 4].all()
    for x, y in ((a, b), (np.zeros_like(a), b), (a, np.zeros_like(b))):
        c, decision = numerics.matmul(x, y)
        assert not decision.recomputed.any()
        assert np.array_equal(c == 0, exact(x, y) == 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 17, 299])
@pytest.mark.parametrize("precision", ["fp32", "bf16x6", "tf32"])
def test_rows_with_special_values_are_recomputed_alone(
    value: float, place: int, precision: str, rng: np.random.Generator
) -> None:
    clean = normal(rng, 20, 300), normal(rng, 300, 25)
    fast, decision = numerics.matmul(*clean, precision)
    assert not decision.recomputed.any()
    for side in (0, 1):
        a, b = clean[0].copy(), clean[1].copy()
        (a if side == 0 else b.T)[2, place] = value
        c, decision = numerics.matmul(a, b, precision, lower_parts=1)
        line = (2, slice(None)) if side == 0 else (slice(None), 2)
        assert decision.tier == {"fp32": FP16X3, "bf16x6": BF16X6, "tf32": constants.FP16}[precision]
        assert (decision.rows, decision.columns)[side][line].all()
        assert decision.recomputed.sum() == c[line].size
        assert not np.isfinite(c[line]).any()
        assert np.array_equal(c[~decision.recomputed], fast[~decision.recomputed])


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("precision", ["fp32", "bf16x6", "tf32"])
def test_with_many_rows_that_are_not_finite_multiply_adds_compute_everything(
    side: int, precision: str, rng: np.random.Generator
) -> None:
    """Many means more than one row in 16."""
    for count, all_of_it in ((2, False), (3, True), (40, True)):
        a, b = normal(rng, 40, 200), normal(rng, 200, 40)
        (a if side == 0 else b.T)[:count, 5] = np.nan
        c, decision = numerics.matmul(a, b, precision)
        assert (decision.tier == FMA) == decision.tiles.all() == all_of_it
        assert np.isnan(c).sum() == 40 * count
        assert not all_of_it or np.array_equal(c, numerics.product(a, b, FMA), equal_nan=True)


def wide(rng: np.random.Generator, *shape: int, sigma: float) -> Array:
    """Return (U - 1/2) exp(sigma N)."""
    return f32(rng.uniform(-0.5, 0.5, shape) * np.exp(sigma * rng.standard_normal(shape)))


def decades(rng: np.random.Generator, k: int) -> tuple[Array, Array]:
    """Return A D and D^-1 B, where D spans 12 decades."""
    scale = 10 ** rng.uniform(-6, 6, k)
    return f32(normal(rng, 40, k) * scale), f32(normal(rng, k, 36) / scale[:, None])


def test_what_the_tiers_are_for(rng: np.random.Generator) -> None:
    def both(sigma: float) -> tuple[Array, Array]:
        return wide(rng, 40, 1024, sigma=sigma), wide(rng, 1024, 36, sigma=sigma)

    cases = [
        ((normal(rng, 40, 1024), normal(rng, 1024, 36)), FP16X3, False),
        ((rng.random((40, 1024), np.float32), rng.random((1024, 36), np.float32)), FP16X3, False),
        (both(1), SCALED_LO, False),
        (both(4), BF16X6, True),
        (decades(rng, 1024), BF16X6, True),
    ]
    for (a, b), tier, much in cases:
        c, decision = numerics.matmul(a, b, lower_parts=1)
        assert decision.tier == tier
        assert not decision.recomputed.any()
        assert np.array_equal(c, numerics.product(a, b, tier))
        c, decision = numerics.matmul(a, b)  # without a lower tier
        assert decision.tier == (SCALED_LO if tier == BF16X6 else tier)
        assert (np.mean(decision.recomputed) > 0.9) == decision.recomputed.any() == much
        assert not much or componentwise(c, a, b) <= componentwise(numerics.product(a, b, FMA), a, b) + 4


def steep_row(rng: np.random.Generator, k: int) -> Array:
    """Return a row that has too few products with columns of which half the elements are zeros."""
    row = np.zeros(k)
    row[rng.permutation(k)[:15]] = [*rng.uniform(1, 2, 10), *[2.0**-40] * 5]
    return f32(row)


def unseen_row(rng: np.random.Generator, k: int) -> Array:
    """Return a row with 20 large elements that no sample has, so that samples do not show what they add to |A||B|."""
    row = rng.uniform(1, 2, k) * np.where(np.arange(k) % 2, 2.0**-50, 2.0**-30)
    row[np.setdiff1d(np.arange(k), row_scales.sampled(k))[:20]] = 1
    return f32(row)


@pytest.mark.parametrize("lower_parts", [None, 1])
@pytest.mark.parametrize("steep", [True, False])
def test_one_bad_row_is_recomputed_alone(steep: bool, lower_parts: int | None, rng: np.random.Generator) -> None:
    """A row is bad if it is not accepted with most columns, or has too few elements."""
    a, b = normal(rng, 200, 600), np.maximum(normal(rng, 600, 70), 0)
    a[150, 5:] = 0
    if steep:
        a[150] = steep_row(rng, 600)
    c, decision = numerics.matmul(a, b, lower_parts=lower_parts)
    assert decision.tier == SCALED_LO
    assert decision.rows[150].all()
    assert decision.recomputed.sum() == decision.rows.sum() == 70
    fast = numerics.product(a, b, SCALED_LO)
    assert np.array_equal(np.delete(c, 150, 0), np.delete(fast, 150, 0))
    assert componentwise(c[150:151], a[150:151], b) < 8


@pytest.mark.parametrize("inline_pack", [False, True])
@pytest.mark.parametrize("k", [128, 600, 2048])
def test_a_few_rows_that_hang_on_one_element_are_recomputed_alone(
    k: int, inline_pack: bool, rng: np.random.Generator
) -> None:
    """fp32 is as good as exact for them: beside that element it loses all the rest. The split's own error would remain."""
    a, b = normal(rng, 40, k), normal(rng, k, 30)
    a[5] = f32(2.0 ** rng.uniform(-60, -50, k))
    a[5, 3:20] = 2.0**-26  # enough elements that are not small
    a[5, 3] = 1.37
    for lower_parts in (None, 1):
        c, decision = numerics.matmul(a, b, inline_pack=inline_pack, lower_parts=lower_parts)
        assert decision.rows[5].all()
        assert not np.delete(decision.rows, 5, 0).any()
        assert componentwise(c[5:6], a[5:6], b) <= 2 < componentwise(numerics.product(a[5:6], b, SCALED_LO), a[5:6], b)
    many = np.concatenate([a, np.tile(a[5], (12, 1))])
    assert not deciding.decide(many, b, inline_pack=inline_pack).rows.any()


@pytest.mark.parametrize("lower_parts", [None, 1])
def test_the_largest_element_decides_where_samples_cannot(lower_parts: int | None, rng: np.random.Generator) -> None:
    """In a row that is read whole, the largest element times its partner is so large that nothing is lost, except where the
    partner is zero, in 30 of 70 columns."""
    a, b = normal(rng, 200, 600), normal(rng, 600, 70)
    a[150] = unseen_row(rng, 600)
    c, decision = numerics.matmul(a, b, lower_parts=lower_parts)
    assert decision.tier == SCALED_LO
    assert not decision.recomputed.any()
    assert componentwise(c[150:151], a[150:151], b) < 8
    b[a[150] == 1, :30] = 0
    c, decision = numerics.matmul(a, b, lower_parts=lower_parts)
    assert decision.tier == SCALED_LO
    assert decision.recomputed.sum() == decision.pairs.sum() == decision.pairs[150, :30].sum() == 30
    assert componentwise(c[150:151], a[150:151], b) < 8


@pytest.mark.parametrize("many", [False, True])
def test_with_inline_packing_a_lower_tier_asks_for_steep_rows(many: bool, rng: np.random.Generator) -> None:
    """With many steep rows the piece of C that is tried, here all of C, is rejected, and a lower tier computes it. Otherwise the
    steep rows or their pairs are recomputed."""
    a, b = normal(rng, 30, 600), np.maximum(normal(rng, 600, 30), 0)
    a[5 : 15 if many else 6] = steep_row(rng, 600)
    _, decision = numerics.matmul(a, b, inline_pack=True)
    assert decision.tier == SCALED_LO
    assert decision.tiles.all() == many
    assert many or decision.pairs[5].sum() == decision.recomputed.sum() == 30
    _, decision = numerics.matmul(a, b, inline_pack=True, lower_parts=1)
    assert decision.tier == (BF16X6 if many else SCALED_LO)
    assert many or decision.rows[5].all()
    assert decision.recomputed.any() != many


def test_tiles_with_more_than_a_few_bad_rows_are_recomputed_whole(rng: np.random.Generator) -> None:
    clean, b = normal(rng, 1100, 300), normal(rng, 300, 80)
    for count, rows, tiles in ((64, 64, 0), (65, 0, 128)):  # LISTED is 64
        a = clean.copy()
        a[3 : 3 + count, 5] = np.inf
        c, decision = numerics.matmul(a, b)
        assert decision.rows.sum() == 80 * rows
        assert decision.tiles.sum() == 80 * tiles
        assert not decision.recomputed[128:].any()
        if tiles:
            assert np.array_equal(c[:128], numerics.product(a, b, FMA)[:128], equal_nan=True)


def test_some_pairs_are_recomputed_alone(rng: np.random.Generator) -> None:
    """The larger elements of a row meet zeros of two columns; the rest is too small even for a scaled lo."""
    a, b = f32(rng.uniform(1, 2, (40, 640))), f32(rng.uniform(1, 2, (640, 50)))
    a[5, 100:500] *= 2.0**-40
    b[:100, 7:9], b[500:, 7:9] = 0, 0
    c, decision = numerics.matmul(a, b)
    assert decision.tier == SCALED_LO
    assert decision.pairs.sum() == decision.recomputed.sum() == 2
    assert decision.pairs[5, 7:9].all()
    assert componentwise(c, a, b) <= numerics.bound(640, tier=decision.tier)


def test_of_a_pair_that_is_alone_twice_the_row_counts(rng: np.random.Generator) -> None:
    a, b = normal(rng, 30, 300), normal(rng, 300, 30)
    a[4, 8], b[9, 6] = np.inf, np.nan
    c, decision = numerics.matmul(a, b)
    assert decision.rows[4].all()
    assert decision.columns[:, 6].sum() == 29
    assert decision.recomputed.sum() == 59
    assert np.isnan(c[:, 6]).all()


def test_what_is_too_small_for_bf16x6_is_recomputed(rng: np.random.Generator) -> None:
    a, b = np.zeros((40, 64), np.float32), np.zeros((64, 40), np.float32)
    a[:, 0], a[:, 1], b[1], b[2] = 2.0**60, 2.0**-60, 3.0, 1.0
    for options in ({"precision": "bf16x6"}, {"precision": "fp32", "lower_parts": 1}):
        c, decision = numerics.matmul(a, b, **options)  # type: ignore[arg-type]
        assert decision.recomputed.all()
        assert np.array_equal(c, exact(a, b))


@pytest.mark.parametrize("precision", ["bf16x6", "fp32"])
def test_products_of_small_elements_do_not_underflow(precision: str) -> None:
    """Rows of both operands span up to 2^90, and the large elements meet zeros; the products, about 2^-20, are normal in fp32."""
    for reach in (20, 32, 40, 45):
        a, b = np.zeros((40, 64), np.float32), np.zeros((64, 40), np.float32)
        a[:, 0], a[:, 1] = 2.0 ** (2 * reach - 10), 2.0**-10 * (1 + 2.0**-11)
        b[1], b[2] = 2.0**-10 * (1 + 2.0**-12), 2.0 ** (2 * reach - 10)
        c, decision = numerics.matmul(a, b, precision, lower_parts=1)
        assert decision.recomputed.any() == (reach > 32)
        assert np.array_equal(c, exact(a, b))


FEW = (
    "randn", "rand", "phi0.5", "phi1", "phi2", "phi4", "loguni4", "loguni8", "cauchy", "outl1000", "6ch300", "gradlogn", "relu.1",
    "softmax4", "logitgrad", "rbf1xnoise", "graded", "hilbert", "trilxtriu", "diag12", "nearI1e-6", "onehot", "banded", "1%both",
    "onebadrow", "naninf", "subnormal",
)  # fmt: skip


@pytest.mark.parametrize("lower_parts", [None, 1])
@pytest.mark.parametrize("name", FEW)
def test_families_keep_the_promise(name: str, lower_parts: int | None) -> None:
    """The error is no larger than an fp32 dot product's, or 4 u, by both gauges."""
    (family,) = families.named([name])
    a, b = family.inputs(48, 640, 40, device="cpu")
    truth, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    c, decision = numerics.matmul(a.numpy(), b.numpy(), lower_parts=lower_parts)
    ours, plain = (
        families.errors(torch.from_numpy(x), truth, size) for x in (c, numerics.fp32_matmul(a.numpy(), b.numpy()))
    )
    assert families.keeps(ours, plain), (decision.tier, ours, plain)


def adversary(rng: np.random.Generator, rows: int, k: int) -> Array:
    """Return rows with structure that a count can overlook: magnitudes of a wide or narrow range, the constant that is worst for
    the split, blocks and sprinkles of zeros, a few elements alone."""
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


@pytest.mark.parametrize("tier", [FP16X3, SCALED_LO, BF16X6])
def test_nothing_that_is_accepted_passes_the_bound(tier: str, rng: np.random.Generator) -> None:
    count, worst, scaled_lo = 0, 0.0, tier == SCALED_LO
    for _ in range(800):
        k = int(rng.choice([1, 3, 16, 40, 64, 80, 130, 400]))
        a, b = adversary(rng, 3, k), np.ascontiguousarray(adversary(rng, 3, k).T)
        size = exact(np.abs(a), np.abs(b))
        if not accepted(a, b, tier).all() or np.any((size > 0) & (size < 2.0**-110)):
            continue
        count += 1
        sides = packed(a, b, numerics.PRODUCTS[tier], scaled_lo)
        error = componentwise(numerics.multiply(*sides), a, b)
        assert error <= numerics.bound(k, tier=tier), (k, error)
        worst = max(worst, error / numerics.bound(k, tier=tier))
        if tier == BF16X6:
            continue
        by_mma = componentwise(numerics.multiply(*sides, block=32, cross_block=32, **AMPERE), a, b)
        assert by_mma <= numerics.bound(k, "mma", tier=tier, **AMPERE), (k, by_mma)
        promote = (1, 4)[count % 2]
        inline = componentwise(numerics.multiply(*sides, block=16 * promote, order=numerics.INLINE_ORDER), a, b)
        assert inline <= numerics.bound(k, tier=tier, inline_pack=True, promote=promote), (k, promote, inline)
    assert count > 150
    assert count < 700 or tier == BF16X6
    assert worst > 0.1


def test_truncation_at_its_worst_stays_below_the_bound() -> None:
    """One product of the block is 1, all others are just below the last place that is kept."""
    a, b = np.full((1, 64), 2.0**-13 * (1 - 2.0**-11), np.float32), np.full((64, 1), 2.0**-12, np.float32)
    a[0, 0], b[0, 0] = 1.0, 1.0
    sides = packed(a, b)
    error = componentwise(numerics.multiply(*sides), a, b)
    assert 30 < error <= numerics.bound(64)
    assert error < 64
    error = componentwise(numerics.multiply(*sides, block=32, cross_block=32), a, b)
    assert 15 < error <= numerics.bound(64, "mma")
    b[1:] *= 2  # now just below the last place that Ampere keeps
    error = componentwise(numerics.multiply(*packed(a, b), block=32, cross_block=32, **AMPERE), a, b)
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


def test_a_bound_is_of_tiers_that_have_one(rng: np.random.Generator) -> None:
    a, b = f32(rng.random((16, 64))), f32(rng.random((64, 16)))
    for precision in ("fp32", "bf16x6"):
        c, decision = numerics.matmul(a, b, precision)
        assert componentwise(c, a, b) <= numerics.bound(64, tier=decision.tier)
    assert numerics.bound(64, tier=numerics.FMA) == 64
    c, decision = numerics.matmul(a, b, "tf32")
    for wrong in ({"tier": decision.tier}, {"tier": "foo"}, {"kernel": "simt"}):
        with pytest.raises(ValueError, match="bound"):
            numerics.bound(64, **wrong)
    with pytest.raises(ValueError, match="-3"):
        numerics.bound(-3)


def test_operands_and_names_that_the_model_does_not_take() -> None:
    a, b = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    with pytest.raises(ValueError, match="unknown tier 'foo'"):
        numerics.product(a, b, "foo")
    with pytest.raises(ValueError, match="precisions fp32, bf16x6 and tf32, got 'ieee'"):
        numerics.matmul(a, b, "ieee")
    for run in (numerics.matmul, lambda *x: numerics.product(*x, numerics.FP16X3)):
        with pytest.raises(ValueError, match=r"\(3, 4\) and \(3, 4\)"):
            run(a, a)
        with pytest.raises(TypeError, match="b must be a numpy array of float32, got float64"):
            run(a, b.astype(np.float64))
        with pytest.raises(TypeError, match="a must be a numpy array"):
            run([[1.0]], b)


@pytest.mark.parametrize("k", [256, 500, 512, 1000, 1024, 2000])
@pytest.mark.parametrize("data", ["one large column in 64", "one large weight", "1 / u"])
def test_one_large_term_among_others_of_one_sign_costs_no_more_than_in_fp32(
    data: str, k: int, rng: np.random.Generator
) -> None:
    """Such a term stays in the tensor core's accumulator, relative to which all later products of the K-block are cut. Promoted
    every 64 of K, that was up to 2.5 times the error of fp32 sums."""
    a, b = rng.random((24, k)), rng.random((k, 24))
    if data == "one large column in 64":
        a *= np.where(np.arange(k) % 64 == 0, 1000, 1)
    elif data == "one large weight":
        a = np.exp(rng.standard_normal((24, k)))
        a[:, 0] = np.exp(9.0)
    else:
        a = 1 / a
    a, b = f32(a), f32(b)
    allowed = max(4.0, normwise(numerics.fp32_matmul(a, b), a, b) / numerics.UNIT)
    for tier in (SCALED_LO, BF16X6):
        assert normwise(numerics.product(a, b, tier), a, b) / numerics.UNIT <= 1.05 * allowed


def test_how_often_sums_are_promoted_is_the_kernels() -> None:
    text = (KERNELS / "tensorcore.cu").read_text()
    found = re.search(r"SCALED_BY_16 = (\d+), LONG_K = (\d+);", text)
    assert found is not None
    assert tuple(map(int, found.groups())) == (numerics.SCALED_BY_16, numerics.LONG_K)
