"""A model, in numpy, of what the emulated kernels observe of the operands and what they decide from it: each row's scale, the
accept test, the tier that computes the product, and the elements of C that multiply-adds recompute. No torch, no card.

`mm32.numerics` has the arithmetic of the tiers, docs/accept-test.md the algorithm. The kernels are in emulated/pack.cu
(mm32_scale), panels.cuh (the accept test), decide.cuh and fallback.cu. The model covers products of one matrix A and one matrix
B, neither of them packed beforehand. An operand is given by rows along K: A is (M, K), and B enters as B.T. row_scales.py has the
scales, accept.py the accept test, constants.py the constants of all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .accept import AcceptTest, Stats, accept_test, largest_terms, scaled, stats, worst
from .constants import (
    ALONE_AT_LEAST,
    ALONE_IN,
    BF16X6,
    DRAWN_PAIRS,
    DRAWS,
    FEW_PAIRS,
    FEW_PIECES,
    FEW_ROWS,
    FEWEST_PIECES,
    FMA,
    FP16,
    FP16X3,
    JUDGES,
    LARGEST_BF16X6,
    LEVELS,
    LISTED,
    MOST_ALONE,
    MOST_APART,
    MOST_MEAGER,
    MOST_PAIRS,
    MOST_REJECTED,
    NOWHERE,
    PARTNERS,
    READY_ROWS,
    ROOM,
    ROW_GROUPS,
    SAMPLES,
    SCALED_LO,
    SHORT_K,
    SMALLEST_BF16X6,
    TARGET,
    TARGET_EXACT,
    TILE_GROUP,
    TRIED,
    TRIED_PAIRS,
    TRIED_TILES,
    ZEROS,
    Array,
    Double,
    Integer,
    Mask,
)
from .row_scales import Scales, power_of_two, scales


@dataclass(frozen=True)
class Decision:
    """What computes C (M, N): a tier, and multiply-adds for the elements where a mask is set.

    An element of both a row and a column is in `rows` only. With the tier FMA, all of C is in `tiles`.
    """

    tier: str  # FP16X3, SCALED_LO, BF16X6, FMA or FP16
    tiles: Mask  # elements of tiles that are recomputed whole
    rows: Mask  # elements of rows of A that are recomputed by themselves
    columns: Mask  # elements of columns of B that are recomputed by themselves
    pairs: Mask  # elements that are recomputed singly

    @cached_property
    def recomputed(self) -> Mask:
        return self.tiles | self.rows | self.columns | self.pairs


class _Side:
    """The rows of an operand in the decision: their stats, which of them are alone, and the worst of each group."""

    def __init__(self, x: Stats, test: AcceptTest, steep: Mask) -> None:
        self.stats, self.count = x, len(x.level)
        tiles, shift = -(-self.count // READY_ROWS), 0
        while (tiles - 1) >> shift >= ROW_GROUPS:
            shift += 1
        self.group = np.arange(self.count) // READY_ROWS >> shift
        groups = (max(tiles - 1, 0) >> shift) + 1
        self.worst, self.of_all = worst(x, self.group, groups), worst(x, np.zeros_like(self.group), 1)
        self.alone = test.alone(x) | (steep & (test.required > 0))
        self.outliers = x.outlier & ~self.alone & (test.required > 0)
        self.group_alone = np.zeros(groups, bool)
        self.add_alone(self.alone)

    def add_alone(self, rows: Mask) -> None:
        self.alone = self.alone | rows
        self.group_alone[self.group[rows]] = True

    def many(self, rows: Mask, share: int, at_least: int) -> bool:
        return int(rows.sum()) > max(at_least, self.count // share)

    def too_many_alone(self, rows: Mask) -> bool:
        return self.many(rows, ALONE_IN, ALONE_AT_LEAST)


def _hashed(count: int, of: int) -> Integer:
    return (np.arange(count) * 2654435761 + 977) % 2**32 % of


def _drawn(pairs: int, m: int, n: int) -> tuple[Integer, Integer]:
    """Return the rows of A, and the columns of B, of the drawn pairs."""
    return _hashed(pairs, m), (np.arange(pairs) * 2246822519 + 3266489917) % 2**32 % n


def gives_up(operands: tuple[Array, Array], a: Scales, b: Scales) -> bool:
    """Return whether fp16x3 is given up before anything is packed (early.cuh).

    Pairs of a row of A and a column of B are drawn. fp16x3 is given up if many pairs have no sampled place that is big in both;
    or if many would be rejected, supposing that the sampled elements stood for all, unless all these pairs are of few rows or
    columns; or if many rows are meager.
    """
    sizes = len(a.exponent), len(b.exponent)
    rows, columns = _drawn(DRAWN_PAIRS, *sizes)
    apart = ~np.any(a.big[1, rows] & b.big[1, columns], axis=1) & ~a.unseen[rows] & ~b.unseen[columns]
    if int(apart.sum()) > MOST_APART:
        return True
    if not ((a.some_small or b.some_small) and (a.wide or b.wide)):
        return False
    rows, columns = _drawn(DRAWS * DRAWN_PAIRS, *sizes)
    test = accept_test(operands[0].shape[1], scaled_lo=True)
    x, y = _estimated(operands[0][rows], a, rows), _estimated(operands[1][columns], b, columns)
    rejected = ~np.diagonal(test.accepts(x, y)) & ~a.unseen[rows] & ~b.unseen[columns]
    for i in np.flatnonzero(rejected):
        one, other = x[i : i + 1], y[i : i + 1]
        rejected[i] = not test.accepts(one, other, largest_terms(one, other)).item()
    meager = max(int(a.meager[rows].sum()), int(b.meager[columns].sum()))
    of_rows = min(len(np.unique(x[rejected] % 256)) for x in (rows, columns))
    return (int(rejected.sum()) > MOST_REJECTED and of_rows > FEW_ROWS) or meager > MOST_MEAGER


def _estimated(rows: Array, found: Scales, at: Integer) -> Stats:
    """Return rows as the accept test will probably see them if lo is scaled: as if the sample stood for the whole row."""
    k, exact = rows.shape[1], found.exact[at]
    x, _ = scaled(rows, found.exponents(True)[at], 3)
    largest = np.where(exact, 2.0**TARGET_EXACT, 2.0 ** (TARGET - ROOM)).astype(np.float32)
    small = (found.sampled_small[at] * (k / SAMPLES)).astype(np.float32)
    regular = np.full(len(at), k)
    big, level = found.big[:, at], found.levels(True)[at]
    return Stats(big, level, largest, small, regular, exact, found.largest_at[at], found.outlier[at], np.abs(x))


def _steep(x: Stats, y: Stats, test: AcceptTest) -> Mask:
    """Return which rows of x are steep: not alone, and not accepted with at least half of PARTNERS rows of y."""
    partners = y[_hashed(PARTNERS, len(y.level))]
    # As if the largest element of a row that was read whole met an element that is big.
    with np.errstate(invalid="ignore", over="ignore"):
        met = np.where(x.largest_at != NOWHERE, x.largest, np.float32(0))[:, None] * (
            np.float32(2.0**-LEVELS) * power_of_two(partners.level)
        )
    rejected = np.sum(~test.accepts(x, partners, met) & ~test.alone(partners), axis=1)
    return (x.small > 0) & ~test.alone(x) & (rejected >= PARTNERS // 2)


def _tile(t: int, m: int, n: int) -> tuple[slice, slice]:
    """Return piece t of C, TRIED x TRIED, in the order of common/tile_order.cuh."""
    tiles_m, tiles_n = -(-m // TRIED), -(-n // TRIED)
    group = t // tiles_n // TILE_GROUP
    height, in_group = min(tiles_m - group * TILE_GROUP, TILE_GROUP), t - group * TILE_GROUP * tiles_n
    m0, n0 = (group * TILE_GROUP + in_group % height) * TRIED, in_group // height * TRIED
    return slice(m0, min(m0 + TRIED, m)), slice(n0, min(n0 + TRIED, n))


def _rejected(a: _Side, b: _Side, test: AcceptTest, here: tuple[slice, slice], by_terms: bool = True) -> Mask:
    """Return which pairs of a tile of C are not accepted, where neither the row nor the column is alone.

    Without `by_terms`, the samples decide by themselves.
    """
    rows, columns = a.stats[here[0]], b.stats[here[1]]
    terms = largest_terms(rows, columns) if by_terms and test.products == 3 else None
    rejected = ~test.accepts(rows, columns, terms)
    return rejected & ~a.alone[here[0]][:, None] & ~b.alone[here[1]]


def decide(
    a: Array,
    b: Array,
    precision: str = "fp32",
    *,
    kernel: str = "tensorcore",
    inline_pack: bool = False,
    lower_tier: bool = False,
    tile: tuple[int, int] = (128, 64),
    cancelled: bool = False,
    early: bool = True,
) -> Decision:
    """Return what computes A (M, K) times B (K, N) on the card.

    Args:
        precision: "fp32", "bf16x6" or "tf32".
        inline_pack: the plan's constant INLINE_PACK.
        lower_tier: launches of bf16x6 follow those of fp16x3 (the plan's constant LOWER_TIER).
        tile: the tile of mm32_fallback.
        cancelled: what `cancellation.cancels` says of the product.
        early: everything may be left to bf16x6 before anything is packed, for K >= SHORT_K.
    """
    products = {"fp32": 3, "bf16x6": 6, "tf32": 1}[precision]
    m, k, n = *a.shape, b.shape[1]
    operands = a, b.T
    found = [scales(x) for x in operands]
    scaled_lo = products == 3 and any(x.wide for x in found)
    test = accept_test(k, products, scaled_lo)
    if products == 3 and lower_tier and early and k >= SHORT_K and gives_up(operands, *found):
        return _lower(operands, found, None, test, tile)
    x, y = (stats(rows, of, products, scaled_lo) for rows, of in zip(operands, found, strict=True))
    none = np.zeros(m, bool), np.zeros(n, bool)
    steep = (_steep(x, y, test), _steep(y, x, test)) if products == 3 and kernel == "tensorcore" else none
    sides = tuple(_Side(of, test, s) for of, s in zip((x, y), none if inline_pack else steep, strict=True))
    good = test.accepts_groups(sides[0].of_all, sides[1].of_all) | test.accepts_groups(sides[0].worst, sides[1].worst)
    few_outliers = any(s.outliers.any() for s in sides) and not any(s.too_many_alone(s.outliers) for s in sides)
    if few_outliers:
        for side in sides:
            side.add_alone(side.outliers)
    unsure = not good.all() or few_outliers
    tier = {3: SCALED_LO if scaled_lo else FP16X3, 6: BF16X6, 1: FP16}[products]
    if unsure:
        for_fma = [~(s.stats.largest <= test.limit) if products == 6 else ~np.isfinite(s.stats.largest) for s in sides]
        if any(s.many(rows, 16, 0) for s, rows in zip(sides, for_fma, strict=True)):
            return _all(FMA, m, n)
        if products == 3 and lower_tier:
            threads = 256 if inline_pack else JUDGES
            rejected = _much(sides, test, threads)
            if rejected and inline_pack and not _many_alone(sides):  # steep rows are marked only now
                for side, rows in zip(sides, steep, strict=True):
                    side.add_alone(rows)
                rejected = _much(sides, test, threads)
            if rejected:
                return _lower(operands, found, (x, y), test, tile)
    if cancelled and products == 3:
        return _lower(operands, found, (x, y), test, tile) if lower_tier else _all(FMA, m, n)
    return _repair(sides[0], sides[1], test, tier, tile, True) if unsure else _nothing(tier, m, n)


def _many_alone(sides: tuple[_Side, ...]) -> bool:
    return any(s.too_many_alone(s.alone) for s in sides)


def _much(sides: tuple[_Side, ...], test: AcceptTest, threads: int) -> bool:
    """Return whether the tier below should compute everything: many rows are alone, or one of the tried pieces of C has more than
    a few pairs that are not accepted."""
    m, n = (s.count for s in sides)
    count = -(-m // TRIED) * -(-n // TRIED)
    pieces = _hashed(TRIED_TILES, count)
    most = TRIED_PAIRS if count >= FEW_PIECES else FEW_PAIRS if count >= FEWEST_PIECES else 0
    return _many_alone(sides) or any(
        _rejects_more(sides[0], sides[1], test, _tile(int(t), m, n), most, threads) for t in pieces
    )


def _rejects_more(a: _Side, b: _Side, test: AcceptTest, here: tuple[slice, slice], most: int, threads: int) -> bool:
    """Return whether a piece of C seems to have more than `most` pairs that are not accepted.

    Each thread has some rows of a column. If the samples reject more than `most` pairs, each thread looks up the term of the
    first pair that it has rejected, and these pairs stand for all.
    """
    by_samples = _rejected(a, b, test, here, by_terms=False)
    total = int(by_samples.sum())
    if total <= most:
        return False
    fails = _rejected(a, b, test, here)
    step, looked_up, failed = threads // TRIED, 0, 0
    for part in range(step):
        mine = by_samples[part::step]
        if len(mine):
            has = mine.any(axis=0)
            first = np.argmax(mine, axis=0) * step + part
            looked_up += int(has.sum())
            failed += int(fails[first[has], np.flatnonzero(has)].sum())
    return total * failed > most * looked_up


def _lower(
    operands: tuple[Array, Array],
    found: list[Scales],
    observed: tuple[Stats, Stats] | None,
    test: AcceptTest,
    tile: tuple[int, int],
) -> Decision:
    """Return the decision after bf16x6, the tier below fp16x3, has packed. The stats (`observed`) are still those of fp16x3, or
    those of bf16x6 if nothing was packed for fp16x3 (None)."""
    test = replace(test, limit=LARGEST_BF16X6, loss=2.0**-100, required=0)
    hi = [np.abs(scaled(rows, of.exponent, 6)[1]) for rows, of in zip(operands, found, strict=True)]
    small = [(rows != 0) & (x < SMALLEST_BF16X6) for rows, x in zip(operands, hi, strict=True)]
    tiny = any(np.any(x) for x in small)
    early = observed is None
    if observed is None:
        first, second = (_after_early(*x) for x in zip(operands, found, hi, small, strict=True))
        observed = first, second
    a, b = (_Side(x, test, np.zeros(len(x.level), bool)) for x in observed)
    if a.many(a.alone, 16, 0) or b.many(b.alone, 16, 0):
        return _all(FMA, a.count, b.count)
    listed = max(int(x.alone.sum()) for x in (a, b)) <= LISTED
    size = _scaled_sums(operands, found, test.scaled_lo and not early) if tiny and listed else None
    return _repair(a, b, test, BF16X6, tile, tiny, size)


def _scaled_sums(operands: tuple[Array, Array], found: list[Scales], scaled_lo: bool) -> Double:
    """Return (M, N), the magnitudes of the fp32 sums of a call without an epilogue, scaled as its rows and columns are."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        exponents = [x.exponents(scaled_lo) for x in found]
        rows, columns = (x.astype(np.float64) for x in operands)
        sums = np.abs(rows @ columns.T).astype(np.float32)
        return np.asarray(np.ldexp(sums.astype(np.float64), np.add.outer(*exponents)))


def _after_early(rows: Array, found: Scales, hi: Array, small: Mask) -> Stats:
    """Return what bf16x6 observes of rows that were not observed before: their largest elements, and how many are too small for
    it."""
    largest, count = np.max(hi, axis=1, initial=0), np.sum(small, axis=1)
    regular = np.where((largest == 0) & (count == 0), ZEROS, 0)
    size = np.abs(scaled(rows, found.exponent, 6)[0])
    return Stats(found.big, found.level, largest, count, regular, found.exact, found.largest_at, found.outlier, size)


def _nothing(tier: str, m: int, n: int) -> Decision:
    return Decision(tier, *(np.zeros((m, n), bool) for _ in range(4)))


def _all(tier: str, m: int, n: int) -> Decision:
    return replace(_nothing(tier, m, n), tiles=np.ones((m, n), bool))


def _repair(
    a: _Side, b: _Side, test: AcceptTest, tier: str, tile: tuple[int, int], all_pairs: bool, size: Double | None = None
) -> Decision:
    """Return what mm32_fallback recomputes. `all_pairs`: pairs are tested too. `size`: the scaled sums, if large ones stand."""
    made = _nothing(tier, a.count, b.count)
    good = (
        test.accepts_groups(a.worst, b.worst) if all_pairs else np.ones((len(a.group_alone), len(b.group_alone)), bool)
    )
    listed = max(int(s.alone.sum()) for s in (a, b)) <= LISTED
    in_range = [s.worst.largest <= test.limit for s in (a, b)]
    seen = ~good | np.logical_or.outer(a.group_alone | ~in_range[0], b.group_alone | ~in_range[1])
    for m0 in range(0, a.count, tile[0]):
        for n0 in range(0, b.count, tile[1]):
            if not seen[a.group[m0], b.group[n0]]:
                continue
            here = slice(m0, min(m0 + tile[0], a.count)), slice(n0, min(n0 + tile[1], b.count))
            rows, columns = a.alone[here[0]], b.alone[here[1]]
            if not listed and (rows.sum() > MOST_ALONE or columns.sum() > MOST_ALONE):
                made.tiles[here] = True
                continue
            pairs = np.zeros((len(rows), len(columns)), bool)
            if all_pairs:
                left = [
                    worst(x, np.zeros(len(x.level), int), 1)
                    for x in (a.stats[here[0]][~rows], b.stats[here[1]][~columns])
                ]
                if not test.accepts_groups(left[0], left[1]).all():
                    pairs = _rejected(a, b, test, here)
                    if size is not None:
                        pairs &= ~test.outweighs(size[here], a.stats[here[0]], b.stats[here[1]])
            if pairs.sum() > MOST_PAIRS:
                # Rows and columns that are alone keep their own order of sums even so, if they are listed.
                made.tiles[here] = ~(rows[:, None] | columns) if listed else True
                if not listed:
                    continue
                pairs[:] = False
            made.rows[here] = rows[:, None]
            made.columns[here] = columns & ~rows[:, None]
            made.pairs[here] = pairs
    return made
