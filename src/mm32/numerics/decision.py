"""A model, in numpy, of what the emulated kernels observe of the operands and what they decide from it: each row's scale, the
accept test, the tier that computes the product, and the elements of C that multiply-adds recompute. No torch, no card.

`mm32.numerics` has the arithmetic of the tiers; docs/accept-test.md the algorithm. The kernels: emulated/pack.cu (mm32_scale),
panels.cuh (the accept test), decide.cuh and fallback.cu. An operand is given by rows along K: A is (M, K), and B enters as B.T.
Products of one matrix of A and one of B, none of them packed beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Double = NDArray[np.float64]
Integer = NDArray[np.int64]
Mask = NDArray[np.bool_]

# As in emulated/panels.cuh, stats.cuh, pack.cu, decide.cuh, early.cuh and fallback.cu, by the same names; tests/test_numerics.py
# compares them.

# The sample of a row, and the scale that follows from it.
SAMPLES = 128  # elements of a row that are sampled
RUN = SAMPLES // 8  # neighbours of which a sample has eight runs
BLOCK_K = 64  # of K in a K-block
TARGET = 10  # the largest sampled element is scaled to 2^this
TARGET_EXACT = 14  # the same of a row that is read whole
ROOM = 5  # so many powers of two lower with a scaled lo, where a row is not read whole
LARGEST_FP16 = 65504.0
LARGEST_BF16X6 = 2.0**45
SMALLEST_BF16X6 = 2.0**-50
SCALE_ROWS = 32  # rows that mm32_scale looks at together
ALONG_ROWS = 8  # places that a warp looks at besides the sample, of an operand that lies along its rows
ALONG_K = 128  # the same of one that lies along K

# Which rows are read whole, and which span much, for which a call takes a scaled lo.
VERY_WIDE = 8  # powers of two that a row's sampled elements are below the largest one, on average, from which on it is read whole
FEWEST_SAMPLES = 4  # sampled elements that are not 0, below which it is read whole too
WIDE = 6  # powers of two, as above, from which on it spans much
SPARSE = 32  # sampled elements that are not 0, of SAMPLES, below which it may
MISSED = 2  # powers of two by which one of the other places exceeds the sample, above which it does
LONG_K = 65536  # K from which lo is scaled whatever the data are
# What is less than 2^this of the largest element is small with a scaled lo, where rows are read whole.
SMALL_OF_LARGEST = -28
SMALL_LEVELS = 4  # steps in which elements are told small
SMALLER = 4  # powers of two of a step
EXCEEDS = 4  # powers of two by which elements beside the sample exceed it, from which on small ones count
# Powers of two by which most elements of an outlier's row are below the largest one: fp32 loses them beside it.
LOST = 24
FEW_BIG = 4  # sampled elements, at most, that come near an outlier

# The accept test: places of K where elements of a row of A and of a column of B are large.
LEVEL = 5  # 2^-this of the largest sampled element
LEVELS = 4  # powers of two from the first level to the second
LOWEST_LEVEL = -100  # its exponent, at least
ALLOWED = {3: 8.0, 1: 65536.0, 6: 65536.0}  # by number of products: 4 u, or 4 * 2^-11, in units of 2^-25
READY_ROWS = 128  # rows that are tested by what all of them have in common
ROW_GROUPS = 256  # such groups, at most: more rows are grouped then
PARTNERS = 8  # rows of the other operand by which a row is told to be steep
JUDGES = 96  # threads of tensorcore.cu that decide; 256 where it packs inline

# Pieces of C that are tested before the tier is decided.
TRIED_TILES = 6  # pieces
TRIED = 32  # rows and columns of a piece
TRIED_PAIRS = 8  # pairs of one that may fail
TILE_GROUP = 8  # rows of pieces that follow each other (common/tile_order.cuh)
FEW_PIECES = 1024  # of C, below which fewer pairs may fail: few blocks would recompute them
FEWEST_PIECES = 256  # below which none may
FEW_PAIRS = 2  # between the two

# What is recomputed alone.
MOST_ALONE = 8  # rows of a tile, or columns
MOST_PAIRS = 128  # pairs of a tile
LISTED = 64  # rows of an operand, up to which they are listed
ALONE_IN = 256  # more rows alone than one of so many,
ALONE_AT_LEAST = 8  # and than so many: everything is for the tier below

# Whether everything is left to the tier below early.
SHORT_K = 256  # K below which nothing is (plan/emulated.py)
DRAWN_PAIRS = 256  # pairs that are looked at for common places
DRAWS = 2  # times as many are looked at for the accept test
FEW_ROWS = 4  # rows, or columns, that all rejected pairs may be of, to be recomputed alone
MOST_APART = DRAWN_PAIRS // 16  # pairs without a common place
MOST_REJECTED = DRAWS * DRAWN_PAIRS // 128
MOST_MEAGER = DRAWS * DRAWN_PAIRS // 64  # pairs of rows that hold hardly an element that is not small

ZEROS = 2**32 - 1  # `regular` of a row of zeros
NOWHERE = -1
# Tiers, as keys of mm32.stats().tiers.
FP16X3 = "fp16x3"
SCALED_LO = "fp16x3 with a scaled lo"
BF16X6 = "bf16x6"
FMA = "FMA"
FP16 = "fp16"  # precision "tf32"


# ---------------------------------------------------------------------------------------------------------------------
# The scale of each row


def sampled(k: int) -> Integer:
    """The places along K that are sampled: 8 runs of 16 neighbours, from the first of K to the end; all of K up to 128."""
    if k <= SAMPLES:
        return np.arange(k)
    begin = np.arange(8) * ((k - RUN) // 7) // RUN * RUN
    return np.asarray(begin[:, None] + np.arange(RUN)).reshape(-1)


def _largest_further(size: Array, along_k: bool) -> Array:
    """(R,): the largest of the further elements of a row that mm32_scale looks at; (R, K) magnitudes. Each of 8 warps of a group
    of 32 rows looks at so many places along K, in turn: of all rows, or, where K is contiguous, of one."""
    rows, k = size.shape
    found = np.zeros(rows, np.float32)
    places = ALONG_K if along_k else ALONG_ROWS
    for part in range(-(-rows // SCALE_ROWS) * 8):
        first, begin = part // 8 * SCALE_ROWS, part % -(-k // places) * places
        last = min(first + SCALE_ROWS, rows)
        if along_k:
            first = min(first + part % SCALE_ROWS, last - 1)
            last = first + 1
        found[first:last] = np.maximum(found[first:last], size[first:last, begin : begin + places].max(axis=1))
    return found


@dataclass(frozen=True)
class Scales:
    """What mm32_scale finds of R rows. The exponent and the level are those of a call without a scaled lo."""

    exponent: Integer  # (R,): the row is multiplied by 2^exponent
    level: Integer  # (R,): 2^level is 2^-LEVEL of the largest sampled element, scaled
    exact: Mask  # (R,): the exponent comes from the whole row
    big: Mask  # (2, R, samples): sampled elements of at least 2^level, and of at least 2^(level - LEVELS), scaled
    unseen: Mask  # (R,): rows of zeros, and those whose sample is not finite
    wide: bool  # a row spans too much for fp16x3 without a scaled lo, or K is long
    largest_at: Integer  # (R,): where along K the largest element of a row that was read whole lies; NOWHERE of others
    sampled_small: Integer  # (R,): of the sampled elements of such a row, about how many are small with a scaled lo
    meager: Mask  # (R,): of these rows, those of which hardly a sampled element is not small, but some are
    some_small: bool  # such elements may matter
    outlier: Mask  # (R,): one or two of its elements may make the whole sum

    def exponents(self, scaled_lo: bool) -> Integer:
        return self.exponent - ROOM * (scaled_lo & ~self.exact)

    def levels(self, scaled_lo: bool) -> Integer:
        return self.level - ROOM * (scaled_lo & ~self.exact)


def scales(rows: Array) -> Scales:
    """(R, K) float32 -> each row's scale. Elements that are not finite are left out. Which further elements are looked at depends
    on whether K is contiguous in `rows`."""
    count_rows, k = rows.shape
    along_k = rows.strides[1] == rows.itemsize
    size = np.abs(np.where(np.isfinite(rows), rows, np.float32(0)))
    sample = size[:, sampled(k)]
    fields = _field(sample)
    count = np.sum(sample > 0, axis=1)
    largest = np.max(sample, axis=1, initial=0)
    field = _field(largest)
    spread = field * count - np.sum(fields, axis=1)  # times count
    wide, very_wide = ((count > 0) & (spread >= least * count) for least in (WIDE, VERY_WIDE))
    finite = np.all(np.isfinite(rows[:, sampled(k)]), axis=1)
    if k <= SAMPLES:
        exact = np.ones(count_rows, bool)
    else:  # rows that are looked at together are read whole together
        few = (count < FEWEST_SAMPLES) & finite
        needs = np.pad(very_wide | few, (0, -count_rows % SCALE_ROWS)).reshape(-1, SCALE_ROWS)
        exact = np.repeat(needs.any(axis=1), SCALE_ROWS)[:count_rows]
    whole = np.where(exact, np.max(size, axis=1, initial=0), largest)
    sparse = (count > 0) & (count < SPARSE * min(k, SAMPLES) // SAMPLES)
    missed = (count > 0) & (_field(whole) - field > TARGET_EXACT - TARGET)
    if k > SAMPLES:
        missed |= (largest > 0) & (_field(_largest_further(size, along_k)) - field > MISSED)
    largest_at = np.where((k > SAMPLES) & exact & (whole > 0), np.argmax(size, axis=1), NOWHERE)
    wanted = np.where(exact, TARGET_EXACT, TARGET) + 127 - _field(whole)
    exponent = np.clip(np.where(whole > 0, wanted, 0), -126, 127)
    level = np.where(largest > 0, field - 127 + exponent - LEVEL, 0)
    least = [np.exp2(np.maximum(field - 127.0 - LEVEL - lower, -126.0))[:, None] for lower in (0, LEVELS)]
    big = np.stack([sample >= x for x in least]) & (level >= LOWEST_LEVEL)[:, None]
    level = np.maximum(level, LOWEST_LEVEL)
    unseen = ~finite | (whole == 0)
    read_whole = (largest_at != NOWHERE) & ~unseen
    exceeds = np.where(read_whole, _field(whole) - field, 0)
    steps = np.minimum((exceeds + SMALLER // 2) // SMALLER, SMALL_LEVELS - 1) * SMALLER
    is_small = (sample > 0) & (sample < np.exp2(np.maximum(field - 127.0 + SMALL_OF_LARGEST + steps, -126.0))[:, None])
    small, others = np.sum(is_small, axis=1) * read_whole, (sample > 0) & ~is_small
    meager = (small > 0) & (np.sum(others[:, :RUN], axis=1) < min(8, k // 4)) & ~np.any(others[:, RUN:], axis=1)
    some_small = bool(np.any((small > 0) & ((exceeds >= EXCEEDS) | meager)))
    spans = k >= LONG_K or bool(np.any(wide | sparse | missed))
    near = np.where(_field(whole) - field > TARGET_EXACT - TARGET, *np.sum(big, axis=2))
    lost = (_field(whole) - field) * count + spread >= LOST * count
    outlier = exact & ~unseen & (count > 0) & ~sparse & lost & (near <= FEW_BIG)
    return Scales(
        exponent, level, exact, big, unseen, spans, largest_at, small, meager, some_small, outlier
    )  # fmt: skip


def _field(x: Array) -> Integer:
    """The biased exponents of numbers that are not negative."""
    return x.astype(np.float32).view(np.uint32).astype(np.int64) >> 23


def _power_of_two(e: Integer) -> Array:
    """panels.cuh's power_of_two: past fp32's range its bits are those of another number, too."""
    return ((e + 127 << 23) & 0xFFFFFFFF).astype(np.uint32).view(np.float32)


# ---------------------------------------------------------------------------------------------------------------------
# Statistics of rows


@dataclass(frozen=True)
class Stats:
    """What the accept test knows of R rows."""

    big: Mask  # (2, R, samples), as in Scales
    level: Integer  # (R,)
    largest: Array  # (R,): the largest magnitude, scaled; NaN if any element is NaN
    small: Integer | Array  # (R,): elements that are small and not zero
    regular: Integer  # (R,): elements that are not small; ZEROS for a row of zeros
    exact: Mask  # (R,), as in Scales
    largest_at: Integer  # the same
    outlier: Mask  # the same
    size: Array  # (R, K): magnitudes, scaled

    def __getitem__(self, rows: Integer | slice | Mask) -> Stats:
        return Stats(
            self.big[:, rows], self.level[rows], self.largest[rows], self.small[rows], self.regular[rows],
            self.exact[rows], self.largest_at[rows], self.outlier[rows], self.size[rows],
        )  # fmt: skip

    @property
    def zeros(self) -> Mask:
        return self.regular == ZEROS


def small_below(products: int, scaled_lo: bool = False) -> float:
    """A hi number below this is small: its element keeps less than its split promises. With 6 products: bf16x6 cannot take it."""
    return SMALLEST_BF16X6 if products == 6 else 2.0**-14 if products == 1 or scaled_lo else 2.0**-3


def bf16(x: Array) -> Array:
    """x rounded to the nearest bf16 number, ties to even."""
    bits = x.view(np.uint32).astype(np.int64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def scaled(rows: Array, exponent: Integer, products: int) -> tuple[Array, Array]:
    """The rows times 2^exponent, and their hi numbers: fp16, or bf16 with 6 products."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        x = rows * np.exp2(exponent.astype(np.float64)).astype(np.float32)[:, None]
        return x, bf16(x) if products == 6 else x.astype(np.float16).astype(np.float32)


def stats(rows: Array, found: Scales, products: int = 3, scaled_lo: bool = False) -> Stats:
    """(R, K) float32 -> what is observed while the rows are packed for 1, 3 or 6 products: of hi numbers, or of the elements
    themselves where hi is infinite."""
    x, hi = scaled(rows, found.exponents(scaled_lo), products)
    small = (rows != 0) & (np.abs(hi) < small_below(products, scaled_lo))
    largest = np.max(np.abs(np.where(np.isfinite(hi), hi, x)), axis=1, initial=0)
    counts = np.sum(small, axis=1), np.sum((rows != 0) & ~small, axis=1)
    if products == 6:  # a row with an element that is too small is taken as one with an Inf
        largest = np.maximum(largest, np.where(counts[0] > 0, np.float32(np.inf), np.float32(0)))
        counts = np.zeros_like(counts[0]), np.zeros_like(counts[1])
    zeros = (largest == 0) & (counts[0] == 0) & (counts[1] == 0)
    regular = np.where(zeros, ZEROS, counts[1])
    return Stats(
        found.big, found.levels(scaled_lo), largest, counts[0], regular,
        found.exact, found.largest_at, found.outlier, np.abs(x),
    )  # fmt: skip


class Worst(NamedTuple):
    """The worst of each of G groups of rows; rows of zeros do not count. As stats.cuh's GroupStats."""

    small: Integer
    largest: Array
    gaps: Integer  # (2, G): the most sampled places that are not big, at either level
    regular: Integer
    level: Integer


def worst(x: Stats, group: Integer, groups: int) -> Worst:
    """`group`: of each row; in a group without rows nothing was seen."""
    gaps = np.where(x.zeros, 0, x.big.shape[2] - np.sum(x.big, axis=2))
    levels = np.where(x.zeros, 127, x.level)
    small, gaps_most = np.zeros(groups, np.int64), np.zeros((2, groups), np.int64)
    largest = np.zeros(groups, np.float32)
    regular, level = np.full(groups, ZEROS), np.full(groups, 127)
    np.maximum.at(small, group, x.small)
    with np.errstate(invalid="ignore"):
        np.maximum.at(largest, group, x.largest)
    for i in range(2):
        np.maximum.at(gaps_most[i], group, gaps[i])
    np.minimum.at(regular, group, x.regular)
    np.minimum.at(level, group, levels)
    return Worst(small, largest, gaps_most, regular, level)


# ---------------------------------------------------------------------------------------------------------------------
# The accept test


@dataclass(frozen=True)
class AcceptTest:
    """Whether the result of a row of A and a column of B is good enough (panels.cuh). `loss` is what a small element loses, in
    units of 2^-25; `required` is how many products must be of elements that are not small."""

    k: int
    products: int
    limit: float
    loss: float
    required: int
    scaled_lo: bool

    def alone(self, x: Stats) -> Mask:
        """(R,): rows that multiply-adds recompute by themselves, but for those that are steep."""
        return ~(x.largest <= self.limit) | (x.regular < self.required)

    def accepts(self, x: Stats, y: Stats, term: Array | None = None) -> Mask:
        """(R of x, R of y): each row with each, as if none was alone. `term`: one of |A||B|, scaled, besides what is sampled."""
        with np.errstate(invalid="ignore", over="ignore"):
            lost = self._lost(x.small, x.largest, y.small, y.largest)
            unit = _power_of_two(x.level[:, None] + y.level)
            allowed, lower = np.float32(ALLOWED[self.products]), np.float32(2.0**-LEVELS)
            high, low = x.big.astype(np.float32), y.big.astype(np.float32)
            both, one, other, places = (high[i] @ low[j].T for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)))
            enough = x.regular[:, None] + y.regular - self.k >= self.required
            size = np.maximum(unit * np.maximum(lower * np.maximum(one, other), lower * lower * places), unit * both)
            loss = lost * np.float32(self.loss)
            if term is not None:
                size = np.maximum(size, term)
            return np.asarray(
                (enough & ((lost == 0) | (loss <= allowed * unit * both)))
                | ((loss <= allowed * size) & (enough | (places >= self.required)))
            )

    def accepts_groups(self, x: Worst, y: Worst) -> Mask:
        """(G of x, G of y): all rows of a group with all of another, as if one pair had the worst of both."""
        in_range = np.logical_and.outer(x.largest <= self.limit, y.largest <= self.limit)
        if self.products == 6:
            return in_range
        with np.errstate(invalid="ignore", over="ignore"):
            lower = np.float32(2.0**-LEVELS)
            both, one, other, places = (
                np.maximum(min(self.k, SAMPLES) - np.add.outer(x.gaps[i], y.gaps[j]), 0)
                for i, j in ((0, 0), (0, 1), (1, 0), (1, 1))
            )
            lost = self._lost(x.small, x.largest, y.small, y.largest) * np.float32(self.loss)
            most = np.maximum.reduce([both, lower * np.maximum(one, other), lower * lower * places])
            size = _power_of_two(np.minimum(np.add.outer(x.level, y.level), 127)) * most.astype(np.float32)
            enough = (places >= self.required) | (np.add.outer(x.regular, y.regular) - self.k >= self.required)
            return in_range & (lost <= np.float32(ALLOWED[self.products]) * size) & enough

    def outweighs(self, size: Double, x: Stats, y: Stats) -> Mask:
        """Sums of which the scaled magnitude, a lower bound of |A||B|, is so large that what is lost is nothing beside it."""
        with np.errstate(invalid="ignore", over="ignore"):
            lost = self._lost(x.small, x.largest, y.small, y.largest) * self.loss
            return np.asarray(lost <= ALLOWED[self.products] / 2 * size)

    @staticmethod
    def _lost(small: Integer | Array, largest: Array, y_small: Integer | Array, y_largest: Array) -> Array:
        lost = np.multiply.outer(small.astype(np.float64), y_largest) + np.multiply.outer(
            largest, y_small.astype(np.float64)
        )
        return lost.astype(np.float32)


def _largest_terms(x: Stats, y: Stats) -> Array:
    """(R of x, R of y): the larger of the terms that have the largest element of either row; 0 where neither was read whole."""
    rounded = np.float32(1 - 2.0**-8)

    def by(x: Stats, y: Stats) -> Array:
        met = y.size[:, np.maximum(x.largest_at, 0)].T
        return np.asarray(np.where(x.largest_at >= 0, x.largest * rounded, np.float32(0))[:, None] * met)

    return np.fmax(by(x, y), by(y, x).T)


def accept_test(k: int, products: int = 3, scaled_lo: bool = False) -> AcceptTest:
    limit = LARGEST_BF16X6 if products == 6 else LARGEST_FP16
    required = min(8, k // 4) if products == 3 else 0
    return AcceptTest(k, products, limit, 2.0**-11 if scaled_lo else 1.0, required, scaled_lo)


# ---------------------------------------------------------------------------------------------------------------------
# The decision


@dataclass(frozen=True)
class Decision:
    """What computes C (M, N): a tier, and by multiply-adds the elements where a mask is set. Of these, rows come before columns.
    With the tier FMA everything is `tiles`."""

    tier: str  # FP16X3, SCALED_LO, BF16X6 or FMA; FP16
    tiles: Mask  # elements of tiles that are recomputed whole
    rows: Mask  # of rows of A that are recomputed by themselves
    columns: Mask  # of columns of B
    pairs: Mask  # single elements

    @cached_property
    def recomputed(self) -> Mask:
        return self.tiles | self.rows | self.columns | self.pairs


class _Side:
    """An operand's rows in the decision: their stats, which are alone, and the worst of each group."""

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
    """Rows of A, and columns of B, that are drawn."""
    return _hashed(pairs, m), (np.arange(pairs) * 2246822519 + 3266489917) % 2**32 % n


def gives_up(operands: tuple[Array, Array], a: Scales, b: Scales) -> bool:
    """Whether fp16x3 is given up before anything is packed (early.cuh): of drawn pairs of a row of A and a column of B, many
    have no sampled place that is big in both, or would be rejected if the sampled elements stood for all, unless all are of few
    rows or columns; or many rows are meager."""
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
        rejected[i] = not test.accepts(one, other, _largest_terms(one, other)).item()
    meager = max(int(a.meager[rows].sum()), int(b.meager[columns].sum()))
    of_rows = min(len(np.unique(x[rejected] % 256)) for x in (rows, columns))
    return (int(rejected.sum()) > MOST_REJECTED and of_rows > FEW_ROWS) or meager > MOST_MEAGER


def _estimated(rows: Array, found: Scales, at: Integer) -> Stats:
    """Rows as the accept test will probably see them, where lo is scaled: as if what is sampled stood for all of a row."""
    k, exact = rows.shape[1], found.exact[at]
    x, _ = scaled(rows, found.exponents(True)[at], 3)
    largest = np.where(exact, 2.0**TARGET_EXACT, 2.0 ** (TARGET - ROOM)).astype(np.float32)
    small = (found.sampled_small[at] * (k / SAMPLES)).astype(np.float32)
    regular = np.full(len(at), k)
    big, level = found.big[:, at], found.levels(True)[at]
    return Stats(big, level, largest, small, regular, exact, found.largest_at[at], found.outlier[at], np.abs(x))


def _steep(x: Stats, y: Stats, test: AcceptTest) -> Mask:
    """Rows of x that are not alone, and are not accepted with at least half of PARTNERS rows of y."""
    partners = y[_hashed(PARTNERS, len(y.level))]
    # As if the largest element of a row that was read whole met what is big.
    with np.errstate(invalid="ignore", over="ignore"):
        met = np.where(x.largest_at != NOWHERE, x.largest, np.float32(0))[:, None] * (
            np.float32(2.0**-LEVELS) * _power_of_two(partners.level)
        )
    rejected = np.sum(~test.accepts(x, partners, met) & ~test.alone(partners), axis=1)
    return (x.small > 0) & ~test.alone(x) & (rejected >= PARTNERS // 2)


def _tile(t: int, m: int, n: int) -> tuple[slice, slice]:
    """Piece t of C, TRIED x TRIED, in the order of common/tile_order.cuh."""
    tiles_m, tiles_n = -(-m // TRIED), -(-n // TRIED)
    group = t // tiles_n // TILE_GROUP
    height, in_group = min(tiles_m - group * TILE_GROUP, TILE_GROUP), t - group * TILE_GROUP * tiles_n
    m0, n0 = (group * TILE_GROUP + in_group % height) * TRIED, in_group // height * TRIED
    return slice(m0, min(m0 + TRIED, m)), slice(n0, min(n0 + TRIED, n))


def _rejected(a: _Side, b: _Side, test: AcceptTest, here: tuple[slice, slice], by_terms: bool = True) -> Mask:
    """In a tile of C: pairs that are not accepted, and of which neither is alone. Not `by_terms`: by the samples."""
    rows, columns = a.stats[here[0]], b.stats[here[1]]
    terms = _largest_terms(rows, columns) if by_terms and test.products == 3 else None
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
    """What computes A (M, K) times B (K, N) on the card. `precision` is "fp32", "bf16x6" or "tf32". `lower_tier`: launches of
    bf16x6 follow those of fp16x3 (a plan's constant LOWER_TIER); `inline_pack` is its constant INLINE_PACK; `tile` is that of
    mm32_fallback. `early`: everything may be left to bf16x6 before it is packed, for K >= SHORT_K. `cancelled`:
    what `cancellation.cancels` says of the product."""
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
    """Whether the tier below should compute everything: many rows are alone, or a piece of C that is tried has more than a few
    pairs that are not accepted."""
    m, n = (s.count for s in sides)
    count = -(-m // TRIED) * -(-n // TRIED)
    pieces = _hashed(TRIED_TILES, count)
    most = TRIED_PAIRS if count >= FEW_PIECES else FEW_PAIRS if count >= FEWEST_PIECES else 0
    return _many_alone(sides) or any(
        _rejects_more(sides[0], sides[1], test, _tile(int(t), m, n), most, threads) for t in pieces
    )


def _rejects_more(a: _Side, b: _Side, test: AcceptTest, here: tuple[slice, slice], most: int, threads: int) -> bool:
    """Whether a piece of C seems to have more pairs than `most` that are not accepted. Each thread has some rows of a column; if
    the samples reject more, the term of the first pair that it has rejected is looked up, and these stand for all."""
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
    """The decision after bf16x6, as the tier below fp16x3, has packed. The stats are still those of fp16x3, or its own where
    nothing was packed for that."""
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
    """(M, N): the magnitudes of the sums of a call without an epilogue, in fp32, scaled as its rows are."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        exponents = [x.exponents(scaled_lo) for x in found]
        rows, columns = (x.astype(np.float64) for x in operands)
        sums = np.abs(rows @ columns.T).astype(np.float32)
        return np.asarray(np.ldexp(sums.astype(np.float64), np.add.outer(*exponents)))


def _after_early(rows: Array, found: Scales, hi: Array, small: Mask) -> Stats:
    """What bf16x6 observes of rows that nothing observed before: the largest elements, and how many are too small for it."""
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
    """What mm32_fallback recomputes. `all_pairs`: pairs are tested too. `size`: the scaled sums, where large ones are kept."""
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
            if (
                pairs.sum() > MOST_PAIRS
            ):  # rows and columns that are alone have their own order of sums even so, if listed
                made.tiles[here] = ~(rows[:, None] | columns) if listed else True
                if not listed:
                    continue
                pairs[:] = False
            made.rows[here] = rows[:, None]
            made.columns[here] = columns & ~rows[:, None]
            made.pairs[here] = pairs
    return made
