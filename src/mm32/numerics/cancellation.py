"""A model, in numpy, of how the kernel "tensorcore" finds that the sums of a product cancel. No torch, no card.

The errors of the split are relative to the terms of a sum, those of fp32 multiply-adds to its partial sums. Where terms
cancel one by one, partial sums stay small, and fp16x3 would be less accurate than fp32; so such a product goes to the next
tier. If the terms had random signs, the sum of the squares of C would be about P, the sum over k of |A's column k|^2 |B's
row k|^2. mm32_scale samples P, mm32_tensorcore adds up the squares of a quarter of C, as far as they are finite, and the launch
after it compares (emulated/cancel.cuh). docs/accept-test.md has the argument.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .constants import BLOCK_K, RUN, SAMPLES, Array, Mask
from .row_scales import sampled

CANCELS = 0.5  # of the root of P, as in emulated/cancel.cuh
LEAST, MOST = 2.0**-100, 2.0**120  # of P times CANCELS^2; elsewhere squares leave fp32's range, and nothing is found


def part_edges(k: int, parts: int) -> list[int]:
    """Where the parts of K begin and end that split-K sums apart, of K rounded up to whole K-blocks: `parts` + 1 numbers."""
    k_blocks = -(-k // BLOCK_K)
    return [k_blocks * i // parts * BLOCK_K for i in range(parts + 1)]


def _watched(rows: int) -> Mask:
    """Of which rows of A, and columns of B, squares are added up: every second eight."""
    return np.arange(rows) % 16 < 8


def least_power(a: Array, b: Array) -> float:
    """The least sum of the squares of what is watched of A (M, K) times B (K, N) that is not cancellation; 0 where that cannot be
    told."""
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
    """Whether the sums of A (M, K) times B (K, N) cancel, each of the parts of K by itself."""
    rows, columns = _watched(len(a)), _watched(b.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        sums = (
            a[rows, begin:end].astype(np.float64) @ b[begin:end, columns].astype(np.float64)
            for begin, end in pairwise(part_edges(a.shape[1], parts))
        )
        return sum(float(np.sum(np.square(c[np.isfinite(c)]))) for c in sums) < least_power(a, b)
