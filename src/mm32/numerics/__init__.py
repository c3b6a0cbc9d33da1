"""A model of the tensor-core kernels' arithmetic in numpy, and the gauges that errors are measured with. No torch, no card.

The schemes: a row of A (a column of B) is scaled by a power of two and split, and tensor cores add up products of the parts.
Their sums are promoted, that is, added to fp32 registers, every 64 of K (kernel "tensorcore"; 16 for short K) or 32 ("mma"). The
scale is undone at the end.

- fp16x3: x = hi + lo in fp16; the products are lo*hi, hi*lo and hi*hi. With a scaled lo, lo = fp16(2^11 (x - hi)), for rows that
  span more.
- bf16x6: x = hi + mid + lo in bf16, without error; the products are the six whose size is more than 2^-24 of a*b.
- fp16, for precision "tf32": hi alone, and no promotion.

`decision` and `cancellation` beside this file model which scheme the card chooses, and what multiply-adds recompute.
docs/numerics.md has the argument; the kernels are in cuda/kernels/emulated (and common/reduce.cu).

Sources. Splitting fp32 into fp16 pairs for tensor cores: Markidis, Der Chien, Laure, Peng, Vetter, "NVIDIA Tensor Core
programmability, performance & precision", IPDPSW 2018. Keeping the sums out of the tensor core's truncating accumulator, and
scaling lo: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
performance", IJHPCA 36(4), 2022. Three bf16 numbers: Henry, Tang, Heinecke, "Leveraging the bfloat16 artificial intelligence
datatype for higher-precision computations", ARITH 2019. How tensor cores add: Fasi, Higham, Mikaitis, Pranesh, "Numerical
behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021; for Hopper, Khattak and Mikaitis, "Accurate models of
NVIDIA tensor cores", arXiv:2512.07004.

Arrays are float32. An operand is given by rows along K: A is (M, K), and B (K, N) enters `pack` as B.T. The only unit of scaled
numbers and errors is u = 2^-24, the unit roundoff of fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .accept import bf16, scaled
from .cancellation import cancels, part_edges
from .constants import BF16X6, BLOCK_K, FMA, FP16, FP16X3, SCALED_LO, Array, Double, Integer
from .decision import Decision, decide
from .row_scales import Scales, scales

UNIT = 2.0**-24
LO_SHIFT = 11  # a scaled lo is multiplied by 2^LO_SHIFT, as in emulated/panels.cuh
KEPT_BITS, WIDTH = 25, 16  # the fraction bits that Hopper keeps of each addend, and how many products it adds at once
LEAST_EXPONENT = {1: -14, 3: -14, 6: -126}  # the least of a normal fp16 or bf16 number, by number of products
# Places of K between promotions, by kernel; `promoted_every` has those of short K.
PROMOTED = {"tensorcore": 64, "mma": 32}
# Below LONG_K "tensorcore" promotes more often (tensorcore.cu): bf16x6 every 16 of K, a scaled lo every 32, or every 16 below
# SCALED_BY_16.
SCALED_BY_16, LONG_K = 512, 2048
FMA_PROMOTED = 128  # the same in mm32_fallback (plan/fma.py, ACCURATE_TILE)
# LINE_LANES threads share a sum of a row or column that is recomputed by itself, PAIR_LANES threads that of a single element. In
# rows and columns a thread takes LINE_NEIGHBOURS neighbouring places of K at a time, and from K = SHARED_LINE on LINE_SHARES
# blocks share K, if the card has clusters.
LINE_LANES, PAIR_LANES = 16, 128
LINE_NEIGHBOURS, LINE_SHARES, SHARED_LINE = 4, 2, 1024
# For each of the 64 places of a K-block, the place in K that a multiply with inline packing (inline_pack.cuh) has there.
INLINE_ORDER = tuple(p // 8 * 4 + p % 4 + (0 if p % 8 < 4 else 32) for p in range(BLOCK_K))
# Which parts of A and of B are multiplied, in order, by number of products. Part 0 is hi, 1 is mid or lo, 2 is lo after mid.
ORDER = {1: ((0, 0),), 3: ((1, 0), (0, 1), (0, 0)), 6: ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))}
PRODUCTS = {FP16X3: 3, SCALED_LO: 3, BF16X6: 6, FP16: 1}  # number of products, by tier


# ---------------------------------------------------------------------------------------------------------------------
# The gauges


def exact(a: Array, b: Array) -> Double:
    """Return A B in float64, the truth that errors are measured against. (M, K), (K, N) -> (M, N)."""
    with np.errstate(invalid="ignore"):
        return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


def normwise(c: Array, a: Array, b: Array) -> float:
    """Return ‖C - C64‖ / ‖C64‖ in Frobenius norms. 0/0 is 0; a C that is not finite gives NaN or inf, which pass no bound."""
    truth = exact(a, b)
    error, size = float(np.linalg.norm(c - truth)), float(np.linalg.norm(truth))
    return 0.0 if error == 0.0 else error / size if size else float("inf")


def componentwise(c: Array, a: Array, b: Array) -> float:
    """Return max |C - C64| / (u |A||B|), in units of u = 2^-24. 0/0 is 0, and a C that is not finite gives NaN or inf.

    In this gauge every fp32 matmul is bounded by K, whatever its order of summation (Higham, Accuracy and Stability of Numerical
    Algorithms, 2nd ed., section 3.5).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        error, size = np.abs(c - exact(a, b)), UNIT * exact(np.abs(a), np.abs(b))
        return float(np.max(np.where(error == 0, 0.0, error / size), initial=0.0))


def promoted_every(k: int, kernel: str, tier: str, promote: int | None = None) -> int:
    """Return the places of K between two promotions of hi*hi, for K = `k`. `promote` is that of `matmul`."""
    if kernel != "tensorcore":
        return PROMOTED[kernel]
    if promote not in (None, 4) and tier != BF16X6:
        return 16 * promote
    if tier not in (SCALED_LO, BF16X6) or k >= LONG_K:
        return PROMOTED[kernel]
    return 16 if tier == BF16X6 or k < SCALED_BY_16 else 32


def bound(
    k: int,
    kernel: str = "tensorcore",
    *,
    tier: str = FP16X3,
    inline_pack: bool = False,
    promote: int | None = None,
    kept_bits: int = KEPT_BITS,
    width: int = WIDTH,
) -> float:
    """Return the upper bound of `componentwise`, in units of u, if nothing was recomputed and nothing left fp32's range
    (docs/numerics.md, "The bound"). It is for K = `k` and the tier FP16X3, SCALED_LO or BF16X6; for FMA it is K. `inline_pack`
    and `promote` are those of `matmul`, `kept_bits` and `width` those of `tensor_core`.

    Raises ValueError for another tier, for which no bound is proved, another kernel, and a negative `k`.
    """
    if k < 0 or kernel not in PROMOTED:
        raise ValueError(f"a bound is of K >= 0 and a kernel of {', '.join(PROMOTED)}; got {k} and {kernel!r}")
    if tier == FMA:
        return float(k)
    if tier not in (FP16X3, SCALED_LO, BF16X6):
        raise ValueError(
            f"no bound is proved for tier {tier!r}: there are those of {FP16X3}, {SCALED_LO}, {BF16X6} and {FMA}"
        )
    split, dropped, lost, small_terms = 8.0, 4.0, 9.0 if tier == SCALED_LO else 4.0, 0.1
    if tier == BF16X6:
        split, dropped, lost, small_terms = 0.0, 1.0, 0.0, 0.5
    every = promoted_every(k, kernel, tier, promote)
    whole, rest = divmod(k, BLOCK_K)
    # The places of the last K-block that hold something. In the order of a multiply that packs inline, they spread over up to
    # twice as many.
    rest = min(2 * rest, BLOCK_K) if inline_pack else rest
    places = BLOCK_K * whole + rest
    inside = min(k, every)
    cut = 2.0 ** (24 - kept_bits)
    truncated = cut * inside + (cut + 2) * -(-min(places, every) // width) + small_terms
    promoted = -(-places // every)
    return (split + dropped + lost + truncated + promoted) * (1 + 2.0**-9)


# ---------------------------------------------------------------------------------------------------------------------
# Packing: scale and split


@dataclass(frozen=True)
class Packed:
    """The R rows of an operand along K, scaled and split."""

    planes: tuple[Double, ...]  # each (R, K): hi, or hi and lo, in fp16; or hi, mid and lo, in bf16
    exponent: Integer  # (R,): the row was multiplied by 2^exponent
    scaled_lo: bool = False  # lo is multiplied by 2^LO_SHIFT

    @property
    def products(self) -> int:
        return {1: 1, 2: 3, 3: 6}[len(self.planes)]


def lo_factor(k: int, scaled_lo: bool = False) -> Array:
    """Return what x - hi is multiplied by before it is rounded to lo, at each of `k` places: 2^LO_SHIFT for a scaled lo,
    otherwise 1, and a little more or less than that, at two places of four each. That decides ties. If all ties went to even, an
    operand of few values would have the same errors again and again, and their sum would grow as K does."""
    up = np.arange(1, k + 1) & 2 == 0
    return np.where(up, np.float32(1 + 2**-13), np.float32(1 - 2**-13)) * np.float32(2**LO_SHIFT if scaled_lo else 1)


def split(x: Array, products: int = 3, scaled_lo: bool = False) -> tuple[Double, ...]:
    """Return the parts of x for 1, 3 or 6 products, each rounded to nearest, ties to even; but ties of fp16's lo up and down in
    magnitude, as their place along K says (`lo_factor`). `x` has any shape, the last axis is K; its elements are in the format's
    range.

    In fp16, hi + lo lose nothing or up to 2^-23 |x| for 2^-2 <= |x|, and up to 2^-25 for smaller |x|. With a scaled lo,
    hi + 2^-11 lo lose up to 2^-23 |x| for 2^-13 <= |x|, and up to 1.25 * 2^-36 for smaller |x|. In bf16, hi + mid + lo lose
    nothing for 2^-110 <= |x|.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if products == 6:
            hi = bf16(x)
            mid = bf16(x - hi)
            parts: tuple[Array, ...] = hi, mid, bf16(x - hi - mid)
        else:
            hi = x.astype(np.float16).astype(np.float32)
            factor = lo_factor(x.shape[-1] if x.ndim else 1, scaled_lo)
            lo = ((x - hi) * factor).reshape(x.shape).astype(np.float16)
            parts = (hi, lo.astype(np.float32))[: 2 if products == 3 else 1]
    return tuple(part.astype(np.float64) for part in parts)


def pack(rows: Array, products: int = 3, scaled_lo: bool = False, found: Scales | None = None) -> Packed:
    """Return the panels of (R, K) float32 rows, whatever the accept test decides about them."""
    exponent = (scales(rows) if found is None else found).exponents(scaled_lo)
    return Packed(split(scaled(rows, exponent, products)[0], products, scaled_lo), exponent, scaled_lo)


# ---------------------------------------------------------------------------------------------------------------------
# Multiplying


def _toward_zero(x: Double) -> Double:
    """Return x cut toward zero to fp32's 24 significant bits, or, below its normal range, to a multiple of 2^-149. |x| must be
    below fp32's largest number."""
    normal = (x.view(np.int64) & ~np.int64((1 << 29) - 1)).view(np.float64)
    return np.where(np.abs(x) < 2.0**-126, np.ldexp(np.trunc(np.ldexp(x, 149)), -149), normal)


def _exponent(x: Double) -> Integer:
    """Return floor(log2 |x|), and for 0 an exponent so low that it never counts."""
    return np.where(x == 0, -4096, np.frexp(x)[1] - 1)


def tensor_core(acc: Double, a: Double, b: Double, kept_bits: int = KEPT_BITS, least_exponent: int = -14) -> Double:
    """Return acc + a b^T as a tensor core adds it at once: acc (M, N) holds fp32 numbers, a (M, k) and b (N, k) fp16 or bf16
    numbers. k is 16 on Hopper, a whole instruction, and 8 on Ampere, where an instruction with 16 of K takes two such steps.

    Products are exact. They and the accumulator are aligned to the largest exponent among them, cut toward zero `kept_bits` below
    it, and added without error; the sum is cut to fp32. The exponent of a product is the sum of its factors' exponents: its
    significand, in [1, 4), is not normalised first. The exponent of a subnormal factor is `least_exponent`. `kept_bits` is 25 for
    Hopper, 24 for Ampere and 23 for Volta.
    """
    product = a[:, None, :] * b[None, :, :]
    powers = [np.where(x == 0, -4096, np.maximum(_exponent(x), least_exponent)) for x in (a, b)]
    highest = np.maximum((powers[0][:, None, :] + powers[1][None, :, :]).max(axis=2), _exponent(acc))
    shift = np.where(highest < -1000, 0, kept_bits - highest)
    total = np.trunc(np.ldexp(product, shift[:, :, None])).sum(axis=2) + np.trunc(np.ldexp(acc, shift))
    return _toward_zero(np.ldexp(total, -shift))


def multiply(
    a: Packed,
    b: Packed,
    *,
    block: int = BLOCK_K,
    cross_block: int = BLOCK_K,
    blocks_promoted: int = 1,
    kept_bits: int = KEPT_BITS,
    width: int = WIDTH,
    parts: int = 1,
    order: Sequence[int] = tuple(range(BLOCK_K)),
) -> Array:
    """Return C (M, N), with the scale undone, from the panels of A's M rows and of B's N columns.

    In each `block` of K (64, 32 or 16) the small terms are added first. With a scaled lo, and with six products if `block` is
    shorter, the small terms of each `cross_block` (64, or 32 in "mma") come first, by themselves; the first of its blocks adds
    hi*hi to their sum, times 2^-11 with a scaled lo.

    Args:
        blocks_promoted: the number of blocks between promotions; 0 for no promotion, as always with one product.
        kept_bits: the card's, as in `tensor_core`.
        width: the card's, how many products are added at once.
        parts: how many parts of K are summed apart and then added up (`add_up`).
        order: which of the 64 places of a K-block is taken at each of its places.
    """
    m, n, k = len(a.exponent), len(b.exponent), a.planes[0].shape[1]
    k_blocks = -(-k // BLOCK_K)
    places = (np.arange(0, k_blocks * BLOCK_K, BLOCK_K)[:, None] + np.array(order)).reshape(-1)
    a_planes, b_planes = ([np.pad(x, ((0, 0), (0, -k % BLOCK_K)))[:, places] for x in side.planes] for side in (a, b))
    every = 0 if a.products == 1 else blocks_promoted
    apart = a.scaled_lo or (a.products == 6 and block < cross_block)
    assert every == 1 or not apart

    def add(acc: Double, pairs: Sequence[tuple[int, int]], begin: int, end: int) -> Double:
        for i, j in pairs:
            for at in range(begin, end, width):
                of_a, of_b = a_planes[i][:, at : at + width], b_planes[j][:, at : at + width]
                acc = tensor_core(acc, of_a, of_b, kept_bits, LEAST_EXPONENT[a.products])
        return acc

    pairs = ORDER[a.products]
    sums = []
    for first, last in pairwise(part_edges(k, parts)):
        total, acc = np.zeros((m, n), np.float32), np.zeros((m, n))
        for begin in range(first, last, block):
            if apart and begin % cross_block == 0:
                acc = add(acc, pairs[:-1], begin, begin + cross_block) * (2.0**-LO_SHIFT if a.scaled_lo else 1.0)
            acc = add(acc, pairs[-1:] if apart else pairs, begin, begin + block)
            if every and ((begin - first) // block + 1) % every == 0:
                total, acc = total + acc.astype(np.float32), np.zeros((m, n))
        total = total + acc.astype(np.float32)
        with np.errstate(over="ignore", under="ignore"):
            undone = np.ldexp(total.astype(np.float64), -(a.exponent[:, None] + b.exponent)).astype(np.float32)
        sums.append(undone)
    return add_up(sums)


def add_up(parts: Sequence[Array]) -> Array:
    """Add up the sums of the parts of K as mm32_reduce does: each eight of them by pairs, and the eights one after another."""
    result = None
    for at in range(0, len(parts), 8):
        eight = [*parts[at : at + 8], *[np.full_like(parts[0], -0.0)] * (8 - len(parts[at : at + 8]))]
        while len(eight) > 1:
            eight = [x + y for x, y in zip(eight[::2], eight[1::2], strict=True)]
        result = eight[0] if result is None else result + eight[0]
    assert result is not None
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Multiply-adds


def fp32_matmul(a: Array, b: Array, promote: int | None = None) -> Array:
    """Compute A B by one fp32 multiply-add after another, promoted every `promote` of K. (M, K), (K, N) -> (M, N).

    Each sum is rounded to float64, then to fp32: where float64 cannot tell a tie from a near-tie, it may round the other way.
    """
    total, part = (np.zeros((a.shape[0], b.shape[1]), np.float32) for _ in range(2))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for k in range(a.shape[1]):
            product = a[:, k, None].astype(np.float64) * b[None, k, :].astype(np.float64)
            part = (product + part).astype(np.float32)
            if promote is not None and (k + 1) % promote == 0:
                total, part = total + part, np.zeros_like(part)
        return total + part


def dot_products(a: Array, b: Array, lanes: int, neighbours: int = 1) -> Array:
    """Return (E,): row i of A (E, K) times row i of B (E, K), for each i. The sum is that of `lanes` threads which share K, each
    taking `neighbours` neighbouring places of K at a time."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        product = a.astype(np.float64) * b.astype(np.float64)
        total = np.zeros((len(a), lanes), np.float32)
        for at in range(0, a.shape[1], lanes * neighbours):
            for first in range(at, at + neighbours):
                step = product[:, first : at + lanes * neighbours : neighbours]
                total[:, : step.shape[1]] = step + total[:, : step.shape[1]]
        while total.shape[1] > 1:
            total = total[:, : total.shape[1] // 2] + total[:, total.shape[1] // 2 :]
    return total[:, 0]


def lines(a: Array, b: Array, shares: int) -> Array:
    """Return the same products as mm32_fallback adds them up in rows and columns that are alone: `shares` blocks share K."""
    each = LINE_LANES * LINE_NEIGHBOURS * shares
    each = -(-a.shape[1] // each) * each // shares
    total = np.zeros(len(a), np.float32)
    for at in range(0, a.shape[1], each):
        total += dot_products(a[:, at : at + each], b[:, at : at + each], LINE_LANES, LINE_NEIGHBOURS)
    return total


def recompute(c: Array, a: Array, b: Array, decision: Decision) -> Array:
    """Return C (M, N) with the elements that `decision` names recomputed by multiply-adds."""
    c = c.copy()
    if decision.tiles.any():
        c[decision.tiles] = fp32_matmul(a, b, FMA_PROMOTED)[decision.tiles]
    shares = LINE_SHARES if a.shape[1] >= SHARED_LINE else 1
    for mask in (decision.rows, decision.columns):
        rows, columns = np.nonzero(mask)
        c[mask] = lines(a[rows], b.T[columns], shares)
    rows, columns = np.nonzero(decision.pairs)
    c[decision.pairs] = dot_products(a[rows], b.T[columns], PAIR_LANES)
    return c


# ---------------------------------------------------------------------------------------------------------------------
# Products


def _check_operands(a: Array, b: Array) -> None:
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, np.ndarray) or x.dtype != np.float32:
            raise TypeError(
                f"{name} must be a numpy array of float32, got {getattr(x, 'dtype', type(x).__name__)} ({type(x)})"
            )
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"a must be (M, K) and b (K, N), got {a.shape} and {b.shape}")


def product(
    a: Array,
    b: Array,
    tier: str,
    *,
    parts: int = 1,
    kernel: str = "tensorcore",
    inline_pack: bool = False,
    promote: int | None = None,
) -> Array:
    """Return A (M, K) times B (K, N), all of it by one tier of PRODUCTS or FMA, whatever the accept test would decide.

    Raises ValueError for another tier, and what `matmul` raises for the operands.
    """
    _check_operands(a, b)
    if tier not in (*PRODUCTS, FMA):
        raise ValueError(f"unknown tier {tier!r}: there are {', '.join((*PRODUCTS, FMA))}")
    if tier == FMA:
        return fp32_matmul(a, b, FMA_PROMOTED)
    x, y = (pack(rows, PRODUCTS[tier], tier == SCALED_LO) for rows in (a, np.ascontiguousarray(b.T)))
    block = promoted_every(a.shape[1], kernel, tier, promote)
    order = INLINE_ORDER if inline_pack else tuple(range(BLOCK_K))
    with np.errstate(invalid="ignore", over="ignore"):
        return multiply(x, y, block=block, cross_block=PROMOTED[kernel], parts=parts, order=order)


def matmul(
    a: Array,
    b: Array,
    precision: str = "fp32",
    *,
    parts: int = 1,
    lower_parts: int | None = None,
    kernel: str = "tensorcore",
    inline_pack: bool = False,
    promote: int | None = None,
    tile: tuple[int, int] = (128, 64),
) -> tuple[Array, Decision]:
    """Return what the kernel "tensorcore", or "mma", computes on Hopper for A (M, K) and B (K, N), and the decision that it takes
    (`decision.Decision`): the tier, and which elements multiply-adds recomputed.

    Args:
        precision: "fp32", "bf16x6" or "tf32".
        parts: how many blocks share K.
        lower_parts: the same for the lower tier, bf16x6; None if the plan has no lower tier.
        inline_pack: the plan's constant INLINE_PACK.
        promote: the plan's constant PROMOTE, how many times 16 of K lie between promotions; by default the kernel's.
        tile: the rows and columns of C that the fallback recomputes together.

    fp16x3 takes about 2 s for 64 x 2048 x 64.

    Raises TypeError for operands that are not numpy arrays of float32, ValueError for shapes and precisions that do not fit.
    """
    _check_operands(a, b)
    if precision not in ("fp32", "bf16x6", "tf32"):
        raise ValueError(
            f"the model has precisions fp32, bf16x6 and tf32, got {precision!r}; fp32_matmul adds in order"
        )
    decision = decide(
        a,
        b,
        precision,
        kernel=kernel,
        inline_pack=inline_pack,
        lower_tier=lower_parts is not None,
        tile=tile,
        early=promote != 1,
        cancelled=precision == "fp32" and kernel == "tensorcore" and cancels(a, b, parts),
    )
    if precision == "fp32" and decision.tier == BF16X6:
        c = product(a, b, BF16X6, parts=lower_parts or 1)
    else:
        c = product(a, b, decision.tier, parts=parts, kernel=kernel, inline_pack=inline_pack, promote=promote)
    return c if decision.tier == FMA else recompute(c, a, b, decision), decision
