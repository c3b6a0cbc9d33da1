"""The scale of each row of an operand, from a sample of it or from all of it (mm32_scale in emulated/pack.cu)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .constants import (
    ALONG_K,
    ALONG_ROWS,
    EXCEEDS,
    FEW_BIG,
    FEWEST_SAMPLES,
    LEVEL,
    LEVELS,
    LONG_K,
    LOST,
    LOWEST_LEVEL,
    MISSED,
    NOWHERE,
    ROOM,
    RUN,
    SAMPLES,
    SCALE_ROWS,
    SMALL_LEVELS,
    SMALL_OF_LARGEST,
    SMALLER,
    SPARSE,
    TARGET,
    TARGET_EXACT,
    VERY_WIDE,
    WIDE,
    Array,
    Integer,
    Mask,
)


def sampled(k: int) -> Integer:
    """Return the sampled places along K: 8 runs of 16 neighbours, from the start of K to its end; all of K up to 128."""
    if k <= SAMPLES:
        return np.arange(k)
    begin = np.arange(8) * ((k - RUN) // 7) // RUN * RUN
    return np.asarray(begin[:, None] + np.arange(RUN)).reshape(-1)


def _largest_further(size: Array, along_k: bool) -> Array:
    """Return (R,), the largest of the further elements that mm32_scale looks at in each row, from (R, K) magnitudes.

    For each group of 32 rows, each of 8 warps looks at other places along K: ALONG_ROWS places of all 32 rows or, if K is
    contiguous, ALONG_K places of one row.
    """
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
    """What mm32_scale finds out about R rows. The exponent and the level are those of a call without a scaled lo."""

    exponent: Integer  # (R,): the row is multiplied by 2^exponent
    level: Integer  # (R,): 2^level is 2^-LEVEL times the largest sampled element, scaled
    exact: Mask  # (R,): the exponent comes from the whole row
    big: Mask  # (2, R, samples): sampled elements of at least 2^level, and of at least 2^(level - LEVELS), scaled
    unseen: Mask  # (R,): rows of zeros, and those whose sample is not finite
    wide: bool  # a row spans too much for fp16x3 without a scaled lo, or K is long
    largest_at: Integer  # (R,): where along K the largest element lies, in a row that was read whole; NOWHERE in others
    sampled_small: Integer  # (R,): of a row read whole, about how many samples are small with a scaled lo; else 0
    meager: Mask  # (R,): rows read whole, whose sample has small elements and hardly one that is not small
    some_small: bool  # some row has small elements that may matter
    outlier: Mask  # (R,): one or two elements of the row may make up the whole sum

    def exponents(self, scaled_lo: bool) -> Integer:
        return self.exponent - ROOM * (scaled_lo & ~self.exact)

    def levels(self, scaled_lo: bool) -> Integer:
        return self.level - ROOM * (scaled_lo & ~self.exact)


def scales(rows: Array) -> Scales:
    """Return the scale of each row of (R, K) float32 rows. Elements that are not finite are left out. Which further elements are
    looked at depends on whether K is contiguous in `rows`."""
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
    else:  # if one row of a group is read whole, all rows of the group are
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
    """Return the biased exponents of numbers that are not negative."""
    return x.astype(np.float32).view(np.uint32).astype(np.int64) >> 23


def power_of_two(e: Integer) -> Array:
    """Return 2^e as power_of_two of panels.cuh does: outside fp32's range, too, it gives the bits of another number."""
    return ((e + 127 << 23) & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
