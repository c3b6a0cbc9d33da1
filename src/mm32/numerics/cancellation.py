"""A model, in numpy, of how the kernel "tensorcore" finds that the sums of a product cancel. No torch, no card.

The errors of the split are relative to the terms of a sum; those of fp32 multiply-adds are relative to its partial sums. Where
terms cancel one by one, partial sums stay small, and fp16x3 would be less accurate than fp32; so such a product goes to the next
tier. If the terms had random signs, the sum of the squares of C would be about P, the sum over k of |A's column k|^2 |B's
row k|^2. mm32_scale estimates P from samples, mm32_tensorcore adds up the finite squares of a quarter of C, and the launch after
it compares the two (emulated/cancel.cuh). docs/accept-test.md has the argument.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .constants import BLOCK_K, RUN, SAMPLES, Array, Mask
from .row_scales import sampled

CANCELS = 0.5  # sums cancel if ‖C‖ is below this times the root of P; as in emulated/cancel.cuh
# The range of CANCELS^2 P in which cancellation is looked for; elsewhere squares leave fp32's range, and nothing is found.
LEAST, MOST = 2.0**-100, 2.0**120


def part_edges(k: int, parts: int) -> list[int]:
    """Return the `parts` + 1 edges of the parts of K that split-K sums apart, with K rounded up to whole K-blocks."""
    k_blocks = -(-k // BLOCK_K)
    return [k_blocks * i // parts * BLOCK_K for i in range(parts + 1)]


def _watched(rows: int) -> Mask:
    """Return which rows of A, or columns of B, are watched, that is, have their squares added up: every second eight."""
    return np.arange(rows) % 16 < 8


def least_power(a: Array, b: Array) -> float:
    """Return the least sum of squares of the watched part of A (M, K) times B (K, N) that is not cancellation, or 0 if that
    cannot be told."""
    k = a.shape[1]
    places = sampled(k)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        of_a, of_b = (
            np.sum(np.square(np.where(np.isfinite(x), x, 0).astype(np.float64)), axis=0).astype(np.float32)
            for x in (a[_watched(len(a))][:, places], b.T[_watched(b.shape[1])][:, places])
        )
        runs = np.sum(np.pad(of_a * of_b, (0, SAMPLES - len(places))).reshape(-1, RUN), axis=1)
        power = float(np.sum(runs))
        if k > SAMPLES:
            power = float(np.fmax(power, float(np.sort(runs)[3]) * k / RUN))
    least = CANCELS**2 * power
    return least if LEAST < least < MOST else 0.0


def cancels(a: Array, b: Array, parts: int = 1) -> bool:
    """Return whether the sums of A (M, K) times B (K, N) cancel, each part of K being summed by itself."""
    rows, columns = _watched(len(a)), _watched(b.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        sums = (
            a[rows, begin:end].astype(np.float64) @ b[begin:end, columns].astype(np.float64)
            for begin, end in pairwise(part_edges(a.shape[1], parts))
        )
        return sum(float(np.sum(np.square(c[np.isfinite(c)]))) for c in sums) < least_power(a, b)
