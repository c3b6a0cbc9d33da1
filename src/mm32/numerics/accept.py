"""The accept test (emulated/panels.cuh): whether fp16x3 is accurate enough for pairs of rows, from statistics of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .constants import (
    ALLOWED,
    LARGEST_BF16X6,
    LARGEST_FP16,
    LEVELS,
    SAMPLES,
    SMALLEST_BF16X6,
    ZEROS,
    Array,
    Double,
    Integer,
    Mask,
)
from .row_scales import Scales, power_of_two


@dataclass(frozen=True)
class Stats:
    """What the accept test knows of R rows."""

    big: Mask  # (2, R, samples), as in Scales
    level: Integer  # (R,)
    largest: Array  # (R,): the largest magnitude, scaled; NaN if any element is NaN
    small: Integer | Array  # (R,): elements that are small and not zero
    regular: Integer  # (R,): elements that are not small; ZEROS for a row of zeros
    exact: Mask  # (R,), as in Scales
    largest_at: Integer  # (R,), as in Scales
    outlier: Mask  # (R,), as in Scales
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
    """Return the magnitude below which a hi number is small, so that its element keeps less than the split promises. With 6
    products, bf16x6 cannot take such an element."""
    return SMALLEST_BF16X6 if products == 6 else 2.0**-14 if products == 1 or scaled_lo else 2.0**-3


def bf16(x: Array) -> Array:
    """Return x rounded to the nearest bf16 number, ties to even."""
    bits = x.view(np.uint32).astype(np.int64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def scaled(rows: Array, exponent: Integer, products: int) -> tuple[Array, Array]:
    """Return the rows times 2^exponent, and their hi numbers: fp16, or bf16 with 6 products."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        x = rows * np.exp2(exponent.astype(np.float64)).astype(np.float32)[:, None]
        return x, bf16(x) if products == 6 else x.astype(np.float16).astype(np.float32)


def stats(rows: Array, found: Scales, products: int = 3, scaled_lo: bool = False) -> Stats:
    """Return what is observed of (R, K) float32 rows while they are packed for 1, 3 or 6 products.

    The hi numbers are observed, or the elements themselves where hi is infinite.
    """
    x, hi = scaled(rows, found.exponents(scaled_lo), products)
    small = (rows != 0) & (np.abs(hi) < small_below(products, scaled_lo))
    largest = np.max(np.abs(np.where(np.isfinite(hi), hi, x)), axis=1, initial=0)
    counts = np.sum(small, axis=1), np.sum((rows != 0) & ~small, axis=1)
    if products == 6:  # a row with an element that is too small counts as one with an Inf
        largest = np.maximum(largest, np.where(counts[0] > 0, np.float32(np.inf), np.float32(0)))
        counts = np.zeros_like(counts[0]), np.zeros_like(counts[1])
    zeros = (largest == 0) & (counts[0] == 0) & (counts[1] == 0)
    regular = np.where(zeros, ZEROS, counts[1])
    return Stats(
        found.big, found.levels(scaled_lo), largest, counts[0], regular,
        found.exact, found.largest_at, found.outlier, np.abs(x),
    )  # fmt: skip


class Worst(NamedTuple):
    """The worst values of each of G groups of rows, as GroupStats of stats.cuh. Rows of zeros do not count."""

    small: Integer
    largest: Array
    gaps: Integer  # (2, G): the most sampled places that are not big, at either level
    regular: Integer
    level: Integer


def worst(x: Stats, group: Integer, groups: int) -> Worst:
    """Return the worst of each of `groups` groups. `group`: the group of each row. A group without rows has nothing seen."""
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


@dataclass(frozen=True)
class AcceptTest:
    """The test whether the result of a row of A and a column of B is good enough (panels.cuh).

    `limit`: the largest magnitude that is in range. `loss`: what a small element loses, in units of 2^-25. `required`: how many
    products must be of elements that are not small.
    """

    k: int
    products: int
    limit: float
    loss: float
    required: int
    scaled_lo: bool

    def alone(self, x: Stats) -> Mask:
        """Return (R,), which rows multiply-adds recompute by themselves; steep rows and outliers are not among them."""
        return ~(x.largest <= self.limit) | (x.regular < self.required)

    def accepts(self, x: Stats, y: Stats, term: Array | None = None) -> Mask:
        """Return (R of x, R of y), whether each row is accepted with each, as if none was alone.

        `term`: a scaled term of |A||B| that is known besides the samples.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            lost = self._lost(x.small, x.largest, y.small, y.largest)
            unit = power_of_two(x.level[:, None] + y.level)
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
        """Return (G of x, G of y), whether all rows of a group are accepted with all of another, as if one pair had the worst of
        both."""
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
            size = power_of_two(np.minimum(np.add.outer(x.level, y.level), 127)) * most.astype(np.float32)
            enough = (places >= self.required) | (np.add.outer(x.regular, y.regular) - self.k >= self.required)
            return in_range & (lost <= np.float32(ALLOWED[self.products]) * size) & enough

    def outweighs(self, size: Double, x: Stats, y: Stats) -> Mask:
        """Return which sums are so large that the loss is negligible. `size`: their scaled magnitudes, which are lower bounds of
        |A||B|."""
        with np.errstate(invalid="ignore", over="ignore"):
            lost = self._lost(x.small, x.largest, y.small, y.largest) * self.loss
            return np.asarray(lost <= ALLOWED[self.products] / 2 * size)

    @staticmethod
    def _lost(small: Integer | Array, largest: Array, y_small: Integer | Array, y_largest: Array) -> Array:
        lost = np.multiply.outer(small.astype(np.float64), y_largest) + np.multiply.outer(
            largest, y_small.astype(np.float64)
        )
        return lost.astype(np.float32)


def largest_terms(x: Stats, y: Stats) -> Array:
    """Return (R of x, R of y), the larger of the two terms that contain the largest element of either row; 0 where neither row
    was read whole."""
    rounded = np.float32(1 - 2.0**-8)

    def by(x: Stats, y: Stats) -> Array:
        met = y.size[:, np.maximum(x.largest_at, 0)].T
        return np.asarray(np.where(x.largest_at >= 0, x.largest * rounded, np.float32(0))[:, None] * met)

    return np.fmax(by(x, y), by(y, x).T)


def accept_test(k: int, products: int = 3, scaled_lo: bool = False) -> AcceptTest:
    limit = LARGEST_BF16X6 if products == 6 else LARGEST_FP16
    required = min(8, k // 4) if products == 3 else 0
    return AcceptTest(k, products, limit, 2.0**-11 if scaled_lo else 1.0, required, scaled_lo)
