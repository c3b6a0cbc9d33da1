"""A model of the tensor-core kernels' arithmetic in numpy, and the gauges that errors are measured with. No torch, no card.

The scheme: a row of A (a column of B) is scaled by a power of two and kept as two fp16 numbers, x = hi + lo; the three
products lo*hi, hi*lo and hi*hi are summed by tensor cores; their sums are promoted, added to fp32 registers, every 64 of K
(kernel "tensorcore"; 16 for short K) or 32 ("mma"); the scale is undone at the end. Rows that fp16's range does not suit are
detected while they are split, and the tiles of C where they meet are then computed by fp32 multiply-adds. `docs/numerics.md` has
the argument; the kernels are in cuda/kernels/emulated (and common/reduce.cu).

Sources. Splitting fp32 into fp16 pairs for tensor cores: Markidis, Der Chien, Laure, Peng, Vetter, "NVIDIA Tensor Core
programmability, performance & precision", IPDPSW 2018. Keeping the sums out of the tensor core's truncating accumulator: Ootomo
and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance",
IJHPCA 36(4), 2022. How tensor cores add: Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ
Computer Science 7:e330, 2021; for Hopper, Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores", arXiv:2512.07004.

Arrays are float32; an operand is given by rows along K: A is (M, K), B (K, N) enters `pack` as B.T. Scaled numbers and errors
have no unit but u = 2^-24, the unit roundoff of fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Double = NDArray[np.float64]
Integer = NDArray[np.int64]

UNIT = 2.0**-24
BLOCK_K, SAMPLES, TARGET, TARGET_EXACT, LIMIT = 64, 128, 10, 14, 65504.0  # as in panels.cuh
SMALL = {3: 2.0**-3, 1: 2.0**-14}  # by number of products
KEPT_BITS, WIDTH = 25, 16  # fraction bits that Hopper keeps of what it adds, and how many products it adds at once
PROMOTED = {"tensorcore": 64, "mma": 32}  # of K, by kernel
# The place in K, within a K-block, that a multiply with inline packing (inline_pack.cuh) takes at each of its 64 places.
INLINE_ORDER = tuple(p // 8 * 4 + p % 4 + (0 if p % 8 < 4 else 32) for p in range(BLOCK_K))
_PRODUCTS = {"fp32": 3, "tf32": 1}
# What the range may cost: 4 u of |A||B|, in units of 2^-25 * BIG^2; of hi alone, as much as its rounding: 4 * 2^-11.
BIG, ALLOWED = 2.0**-3, {3: 8.0, 1: 2.0**16}
# Products in a sum below which the split's own 2^-22 shows beside fp32's rounding; one in 64 of K where that is less.
FEWEST = {3: 64.0, 1: 0.0}


# ---------------------------------------------------------------------------------------------------------------------
# The gauges


def exact(a: Array, b: Array) -> Double:
    """A B in float64: the truth that errors are measured against. (M, K), (K, N) -> (M, N)."""
    with np.errstate(invalid="ignore"):
        return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


def normwise(c: Array, a: Array, b: Array) -> float:
    """‖C - C64‖ / ‖C64‖, Frobenius norms; 0/0 is 0, and a C that is not finite gives NaN or inf, which pass no bound."""
    truth = exact(a, b)
    error, size = float(np.linalg.norm(c - truth)), float(np.linalg.norm(truth))
    return 0.0 if error == 0.0 else error / size if size else float("inf")


def componentwise(c: Array, a: Array, b: Array) -> float:
    """max |C - C64| / (u |A||B|), in units of u = 2^-24; 0/0 is 0, NaN where C is not finite.

    The gauge in which every fp32 matmul is bounded by K, whatever its order of summation (Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd ed., section 3.5).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        error, size = np.abs(c - exact(a, b)), UNIT * exact(np.abs(a), np.abs(b))
        return float(np.max(np.where(error == 0, 0.0, error / size), initial=0.0))


def bound(
    k: int,
    kernel: str = "tensorcore",
    *,
    inline_pack: bool = False,
    promote: int | None = None,
    kept_bits: int = KEPT_BITS,
    width: int = WIDTH,
) -> float:
    """What `componentwise` is at most where the fast path was taken and nothing left fp32's range (docs/numerics.md, "The
    bound"): in units of u, for K = `k`, precision "fp32". `inline_pack` and `promote` as for `matmul`; `kept_bits` and `width`
    are those of `tensor_core`."""
    split, dropped, lost = 8.0, 4.0, 4.0
    every = PROMOTED[kernel] if promote is None else 16 * promote
    whole, rest = divmod(k, BLOCK_K)
    # Places that hold something of the last K-block; in the order of a multiply that packs inline, up to twice as many are gone
    # through.
    rest = min(2 * rest, BLOCK_K) if inline_pack else rest
    places = BLOCK_K * whole + rest
    inside = min(k, every)
    cut = 2.0 ** (24 - kept_bits)
    truncated = cut * inside + (cut + 2) * -(-min(places, every) // width) + 0.1
    promoted = -(-places // every)
    return (split + dropped + lost + truncated + promoted) * (1 + 2.0**-9)


# ---------------------------------------------------------------------------------------------------------------------
# Packing: scale, split, statistics


@dataclass(frozen=True)
class Packed:
    """An operand's rows, split; R rows along K."""

    hi: Double  # (R, K), fp16 numbers
    lo: Double  # (R, K), fp16 numbers; zeros with one product
    exponent: Integer  # (R,): the row was multiplied by 2^exponent
    small: Integer  # (R,): elements that are not zero, and scaled are below SMALL
    largest: Array  # (R,): scaled; NaN if any element is NaN
    big: NDArray[np.bool_]  # (R, at most SAMPLES): sampled elements of at least BIG times 2^target, scaled


def sampled(k: int) -> Integer:
    """The places along K that the scale is chosen from: 8 runs of 16 neighbours, or all if there are no more than 128."""
    if k <= SAMPLES:
        return np.arange(k)
    run, within = np.divmod(np.arange(SAMPLES), SAMPLES // 8)
    return np.asarray((2 * run + 1) * (k // 16) // (SAMPLES // 8) * (SAMPLES // 8) + within)


def target(k: int) -> int:
    """The exponent that the largest sampled element is brought to: up to 2^5 more fits where the sample is not all."""
    return TARGET_EXACT if k <= SAMPLES else TARGET


def exponents(rows: Array) -> Integer:
    """(R, K) -> (R,): each row's exponent. Non-finite elements are left out; a sample of zeros gives 0."""
    sample = np.abs(rows[:, sampled(rows.shape[1])])
    largest = np.max(np.where(np.isfinite(sample), sample, 0), axis=1, initial=0)
    field = largest.astype(np.float32).view(np.uint32).astype(np.int64) >> 23
    return np.where(largest > 0, np.clip(target(rows.shape[1]) + 127 - field, -126, 127), 0)


def split(x: Array, products: int = 3) -> tuple[Double, Double]:
    """x -> hi + lo, each rounded to the nearest fp16, ties to even; any shape, elements up to 65504.

    What is lost: nothing or up to 2^-23 |x| for 2^-2 <= |x|, up to 2^-25 below. With one product lo is left out.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        hi = x.astype(np.float16)
        rest = x - hi.astype(np.float32)
        lo = rest.astype(np.float16) if products == 3 else np.zeros_like(hi)
    return hi.astype(np.float64), lo.astype(np.float64)


def pack(rows: Array, products: int = 3) -> Packed:
    """(R, K) float32 -> its split, and what decides whether the split suits it."""
    exponent = exponents(rows)
    with np.errstate(over="ignore", under="ignore"):
        scaled = rows * np.exp2(exponent.astype(np.float64)).astype(np.float32)[:, None]
    size = np.abs(scaled)
    small = np.sum((rows != 0) & (size < SMALL[products]), axis=1)
    big = size[:, sampled(rows.shape[1])] >= np.float32(BIG * 2.0 ** target(rows.shape[1]))
    hi, lo = split(scaled, products)
    return Packed(hi, lo, exponent, small, np.max(size, axis=1, initial=0), big)


def fits(a: Packed, b: Packed, products: int = 3) -> NDArray[np.bool_]:
    """(M, N): where the fast path's result stands; a tile in which it does not the card computes again by fp32 multiply-adds.

    An element below SMALL keeps 2^-25 of absolute precision, so for a row i of A and a column j of B the range costs at most
    2^-25 (small_i largest_j + small_j largest_i). Where both have a big element at the same sampled place, |A||B| is at least
    BIG^2 (times 2^(2 target)) for every such place. The cost must be no more than 4 u |A||B|; FEWEST products must count, by what
    the sample says of K; and no element of either row may be out of fp16's range. Rows of zeros lose nothing.
    """
    k = a.hi.shape[1]
    with np.errstate(invalid="ignore"):
        lost = np.multiply.outer(a.small.astype(np.float64), b.largest) + np.multiply.outer(
            a.largest, b.small.astype(np.float64)
        )
    places = a.big.astype(np.float64) @ b.big.T.astype(np.float64)
    fewest = min(FEWEST[products], k / 64) * min(1.0, SAMPLES / max(k, 1))
    good = (lost <= ALLOWED[products] * places * (BIG * 2.0 ** target(k)) ** 2) & (places >= fewest)
    zeros = np.logical_or.outer((a.largest == 0) & (a.small == 0), (b.largest == 0) & (b.small == 0))
    return np.logical_and.outer(a.largest <= LIMIT, b.largest <= LIMIT) & (good | zeros)


# ---------------------------------------------------------------------------------------------------------------------
# Multiplying


def _toward_zero(x: Double) -> Double:
    """Cut to fp32's 24 significant bits; for the range of scaled sums, which is far from fp32's ends."""
    return (x.view(np.int64) & ~np.int64((1 << 29) - 1)).view(np.float64)


def _exponent(x: Double) -> Integer:
    """floor(log2 |x|); for 0 so small that it decides nothing."""
    return np.where(x == 0, -4096, np.frexp(x)[1] - 1)


def tensor_core(acc: Double, a: Double, b: Double, kept_bits: int = KEPT_BITS) -> Double:
    """What a tensor core adds at once, acc + a b^T: acc (M, N) of fp32 numbers, a (M, k) and b (N, k) of fp16 numbers. k is 16
    on Hopper, a whole instruction; 8 on Ampere, where an instruction with 16 of K is two of these.

    Products are exact. They and the accumulator are aligned to the largest exponent among them (a product's is the sum of its
    factors': its significand, in [1, 4), is not normalised first; a subnormal factor's is -14), cut toward zero `kept_bits`
    below it, and added without error; the sum is cut to fp32. `kept_bits` is 25 for Hopper; 24 and 23 for Ampere and Volta.
    """
    product = a[:, None, :] * b[None, :, :]
    powers = [np.where(x == 0, -4096, np.maximum(_exponent(x), -14)) for x in (a, b)]
    highest = np.maximum((powers[0][:, None, :] + powers[1][None, :, :]).max(axis=2), _exponent(acc))
    shift = np.where(highest < -1000, 0, kept_bits - highest)
    total = np.trunc(np.ldexp(product, shift[:, :, None])).sum(axis=2) + np.trunc(np.ldexp(acc, shift))
    return _toward_zero(np.ldexp(total, -shift))


def multiply(
    a: Packed,
    b: Packed,
    products: int = 3,
    *,
    block: int = BLOCK_K,
    promoted_every: int = 1,
    kept_bits: int = KEPT_BITS,
    width: int = WIDTH,
    parts: int = 1,
    order: Sequence[int] = tuple(range(BLOCK_K)),
) -> Array:
    """C from splits of A (rows M) and of B's columns (rows N): (M, N), the scale undone.

    Of each `block` of K (64, or 32 in the kernel "mma", or 16) the small terms are added first. `promoted_every` counts blocks
    between promotions, 0 for never; one product is never promoted. `kept_bits` and `width`, how many products are added at once,
    are the card's (`tensor_core`). `parts` is how many parts of K are summed apart, then added up (`add_up`). `order` is
    which of a K-block's 64 is taken at each place.
    """
    m, n, k = len(a.hi), len(b.hi), a.hi.shape[1]
    blocks = -(-k // BLOCK_K) * BLOCK_K // block
    padded = blocks * block
    places = (np.arange(0, padded, BLOCK_K)[:, None] + np.array(order)).reshape(-1)
    planes = [np.pad(x, ((0, 0), (0, padded - k)))[:, places] for x in (a.hi, a.lo, b.hi, b.lo)]
    a_hi, a_lo, b_hi, b_lo = planes
    pairs = [(a_lo, b_hi), (a_hi, b_lo), (a_hi, b_hi)] if products == 3 else [(a_hi, b_hi)]
    every = promoted_every if products == 3 else 0
    per_block = BLOCK_K // block
    edges = [blocks // per_block * i // parts * per_block for i in range(parts + 1)]
    sums = []
    for part in range(parts):
        total, acc = np.zeros((m, n), np.float32), np.zeros((m, n))
        for number in range(edges[part], edges[part + 1]):
            for x, y in pairs:
                for at in range(number * block, (number + 1) * block, width):
                    acc = tensor_core(acc, x[:, at : at + width], y[:, at : at + width], kept_bits)
            if every and (number + 1 - edges[part]) % every == 0:
                total, acc = total + acc.astype(np.float32), np.zeros((m, n))
        total = total + acc.astype(np.float32)
        with np.errstate(over="ignore", under="ignore"):
            undone = np.ldexp(total.astype(np.float64), -(a.exponent[:, None] + b.exponent[None, :])).astype(np.float32)
        sums.append(undone)
    return add_up(sums)


def add_up(parts: Sequence[Array]) -> Array:
    """What mm32_reduce makes of the sums of the parts of K: eight at a time by pairs, and these one after another."""
    result = None
    for at in range(0, len(parts), 8):
        eight = [*parts[at : at + 8], *[np.full_like(parts[0], -0.0)] * (8 - len(parts[at : at + 8]))]
        while len(eight) > 1:
            eight = [x + y for x, y in zip(eight[::2], eight[1::2], strict=True)]
        result = eight[0] if result is None else result + eight[0]
    assert result is not None
    return result


def fp32_matmul(a: Array, b: Array) -> Array:
    """The fallback, but for its promotion every 128 of K: one fp32 multiply-add after another. (M, K), (K, N) -> (M, N).

    The sum is rounded to float64, then to fp32: a tie that float64 cannot tell from a near-tie may round the other way.
    """
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for k in range(a.shape[1]):
            product = a[:, k, None].astype(np.float64) * b[None, k, :].astype(np.float64)
            total = (product + total).astype(np.float32)
    return total


def matmul(
    a: Array,
    b: Array,
    precision: str = "fp32",
    *,
    parts: int = 1,
    kernel: str = "tensorcore",
    inline_pack: bool = False,
    promote: int | None = None,
    tile: tuple[int, int] = (128, 64),
) -> tuple[Array, bool]:
    """What the kernel "tensorcore", or "mma", computes on Hopper for A (M, K) and B (K, N), and whether the fallback
    recomputed any of it.

    `precision` is "fp32" or "tf32"; `inline_pack` and `promote`, the times 16 of K between promotions (by default the kernel's),
    are the plan's constants INLINE_PACK and PROMOTE; `tile` is the rows and columns of C that the plan's fallback tests and
    recomputes together. About 2 s for 64 x 2048 x 64.
    """
    products = _PRODUCTS[precision]
    packed = pack(a, products), pack(np.ascontiguousarray(b.T), products)
    good = fits(*packed, products)
    block = PROMOTED[kernel] if promote is None else 16 * promote
    order = INLINE_ORDER if inline_pack else tuple(range(BLOCK_K))
    with np.errstate(invalid="ignore", over="ignore"):
        result = multiply(*packed, products, block=block, parts=parts, order=order)
    for m in range(0, len(a), tile[0]):
        for n in range(0, b.shape[1], tile[1]):
            here = slice(m, m + tile[0]), slice(n, n + tile[1])
            if not good[here].all():
                result[here] = fp32_matmul(a[here[0]], b[:, here[1]])
    return result, not bool(good.all())
