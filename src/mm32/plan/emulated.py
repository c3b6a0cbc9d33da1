"""The kernels that emulate fp32 by fp16 or bf16 products on tensor cores, mma and tensorcore: they scale and pack the operands,
multiply their panels, add up partial sums, and recompute what fails the accept test. Packing an operand alone is here too;
packing.py has what packing takes.

There are three steps, each a function of its own: list the candidates (a tile and how many blocks share K), score each (cost.py),
and assemble the plan of one: the launches, constants and workspace that it needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from mm32.gemm import Gemm
from mm32.plan import card as cards
from mm32.plan import cost, fma, packing
from mm32.plan.card import Card
from mm32.plan.cost import Packing, Work
from mm32.plan.plan import (
    EMULATED_KERNELS,
    NO_EPILOGUE,
    Constants,
    Launch,
    Plan,
    Unplannable,
    epilogue,
    unsupported,
)
from mm32.plan.sources import PACKERS, TILE_M

MOST_BLOCKS = 256  # the most blocks of a multiply by tensorcore: each leaves a sum of squares in the decision
QUEUE = 65536  # bytes of shared memory through which inline packing loads (inline_pack.cuh)
GROUP = 8  # rows of tiles that share what is in L2 (tile_order.cuh)
LEAST_BLOCKS = 4  # the least K-blocks of a part of K
MOST_INLINE_BLOCKS = 4000  # the most K-blocks of a part with inline packing: 16 bits hold counts of 16 a K-block
SHORT_K = 256  # below it, tensorcore promotes every 16 of K, and mma's error may exceed that of an fp32 sum
SHORTEST_K = 32  # below it, tensorcore's error may exceed that of an fp32 sum
MAX_ROWS = 2**24 - 8  # a plane of panels has 128 bytes a row, padded to 8 rows and counted in 31 bits
FALLBACK_BLOCKS = 16  # blocks of mm32_fallback for a tile: they share rows and columns that are recomputed alone
# The size of a cluster whose blocks share the K of these rows and columns, and the K from which on they do. With one NaN and
# one Inf, 2048 x 4096 x 2048 took an H100 267 us by single blocks, 256 us by clusters of two, and 270 us by clusters of four.
FALLBACK_CLUSTER, FALLBACK_SHARES = 2, 1024


@dataclass(frozen=True)
class Tile:
    """A tile of 128 x n of an emulated kernel, with `stages` stages of K-blocks in shared memory.

    `products`: of each pair of elements, 6 (bf16x6), 3 (fp16x3) or 1 (fp16). `inline`: whether the multiply packs its operands
    itself. `promote`: after how many times 16 of K sums move to fp32 registers; 1 is for K below SHORT_K.
    """

    kernel: str
    n: int
    products: int
    stages: int
    inline: bool = False
    promote: int = 4
    label: str = ""

    m = TILE_M
    k = packing.BLOCK_K

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory of a block."""
        planes = packing.PLANES[self.products] if self.kernel == "tensorcore" else 1
        ring = self.stages * planes * packing.PLANE_ROW * (TILE_M + self.n)
        return ring if self.kernel == "mma" else ring + (QUEUE if self.inline else 0) + 1024

    @property
    def threads(self) -> int:
        return 256 if self.kernel == "mma" else 512 if self.inline else 384

    @property
    def beside(self) -> bool:
        """Whether packing may go on beside it, because a block of mm32_pack fits on the same multiprocessor."""
        return self.kernel == "tensorcore" and self.n <= 128 and self.products < 6

    @property
    def constants(self) -> Constants:
        """The tile's own constants, in the kernel's order."""
        of_tile = (("TILE_N", self.n), ("STAGES", self.stages))
        if self.kernel == "mma":
            return of_tile
        return (*of_tile, ("INLINE_PACK", int(self.inline)), ("PROMOTE", self.promote))


def _tensor(n: int, products: int, stages: int, inline: bool = False, promote: int = 4) -> Tile:
    label = f"tensorcore.{n}x{products}" + ".inline" * inline + ".short" * (promote == 1)
    return Tile("tensorcore", n, products, stages, inline, promote, label)


def _mma(n: int, products: int) -> Tile:
    # 3 stages take 98.5 KB at most, static shared memory included: they fit in the 99 KB of sm_86, sm_89 and sm_120.
    return Tile("mma", n, products, 3, False, 2, f"mma.{n}x{products}")


TENSOR_TILES = (
    _tensor(128, 3, 3),
    _tensor(64, 3, 4),
    _tensor(256, 1, 4),
    _tensor(128, 1, 6),
    _tensor(64, 1, 6),
    _tensor(128, 3, 2, inline=True),
    _tensor(64, 3, 3, inline=True),
    _tensor(128, 1, 4, inline=True),
    _tensor(64, 1, 5, inline=True),
    _tensor(128, 3, 3, promote=1),
    _tensor(128, 6, 2),
    _tensor(64, 6, 2),
)
MMA_TILES = (_mma(128, 3), _mma(64, 3), _mma(128, 1), _mma(64, 1))


# ---------------------------------------------------------------------------------------------------------------------
# Candidates, scores


class Candidate(NamedTuple):
    """One way for an emulated kernel to compute a product: a tile, how many blocks share K, and whether packing goes on beside
    the multiply."""

    seconds: float
    tile: Tile
    parts: int
    beside: bool

    @property
    def label(self) -> str:
        """Its name in records."""
        return f"{self.tile.label.replace('.', ' ', 1)}/{self.parts}"


def parts_to_try(tiles: int, k_blocks: int, card: Card) -> list[int]:
    """The numbers of blocks that may share K; among them is the one that gives each multiprocessor a tile."""
    fill = max(card.sms // tiles, 1)
    tried = cost.PARTS if fill in cost.PARTS else sorted((*cost.PARTS, fill))
    return [parts for parts in tried if parts == 1 or parts * LEAST_BLOCKS <= k_blocks]


def _tiles(kernel: str, asked: packing.Operands, prepacked: tuple[bool, bool]) -> list[Tile]:
    """The kernel's tiles that suit a product."""
    gemm = asked.gemm
    if kernel == "mma":
        return [tile for tile in MMA_TILES if tile.products == asked.products]
    short = asked.products == 3 and gemm.k < SHORT_K
    # Inline packing has 32-bit offsets within a tile.
    inline = not any(prepacked) and max(gemm.a.row, gemm.a.col, gemm.b.row, gemm.b.col) < 2**23
    return [
        tile
        for tile in TENSOR_TILES
        if tile.products == asked.products and (tile.promote == 1) == short and (inline or not tile.inline)
    ]


def candidates(
    kernel: str, work: Work, card: Card, prepacked: tuple[bool, bool] = (False, False), products: int | None = None
) -> list[Candidate]:
    """The kernel's ways to compute a product that is not empty. Each is scored as if nothing was prepacked, so that the tile and
    the parts, and with them the result's bits, are those of a call without packed operands (unless that call packs inline)."""
    gemm, model, asked = work.gemm, cost.of(card), packing.operands(work.gemm, products)
    work_of_packing, packed = _packing(asked), sum(asked.packed_bytes)
    k_blocks, made, least = asked.k_blocks, [], math.inf
    for tile in _tiles(kernel, asked, prepacked):
        tiles = work.batches * -(-gemm.m // TILE_M) * -(-gemm.n // tile.n)
        for parts in parts_to_try(tiles, k_blocks, card):
            if parts > 1 and (parts * work.results > fma.MOST_PARTIAL_SUMS or model.reduction(work, parts) > least):
                break  # more parts take longer to add up than another candidate takes
            if tile.inline and k_blocks > MOST_INLINE_BLOCKS * parts:
                continue
            seconds, beside = model.emulated(work, work_of_packing, tile, tiles, parts, packed)
            made.append(Candidate(seconds, tile, parts, beside))
            least = min(least, seconds)
    return made


def _packing(asked: packing.Operands) -> Packing:
    gemm, matrices = asked.gemm, asked.matrices
    return Packing(
        rows=matrices[0] * gemm.m + matrices[1] * gemm.n,
        units=packing.units(gemm, matrices, asked.loads),
        reads="scattered" if 1 in asked.loads else "shifted" if {4, 5} & {*asked.loads} else "aligned",
        inline_scattered=any(load % 2 for load in asked.inline_loads),
    )


def with_prepacked(chosen: Candidate, work: Work, card: Card, prepacked: tuple[bool, bool]) -> Candidate:
    """The candidate, scored for the operands that are prepacked."""
    asked, tile = packing.operands(work.gemm), chosen.tile
    left = sum(b for b, done in zip(asked.packed_bytes, prepacked, strict=True) if not done)
    tiles = work.batches * -(-work.m // TILE_M) * -(-work.n // tile.n)
    seconds, beside = cost.of(card).emulated(work, _packing(asked), tile, tiles, chosen.parts, left)
    return Candidate(seconds, tile, chosen.parts, beside)


# ---------------------------------------------------------------------------------------------------------------------
# Plans


def assemble(candidate: Candidate, gemm: Gemm, card: Card, prepacked: tuple[bool, bool] = (False, False)) -> Plan:
    """The plan of a candidate."""
    asked, tile, parts = packing.operands(gemm), candidate.tile, candidate.parts
    if tile.inline:
        loads = asked.inline_loads
    else:
        a, b = asked.loads
        loads = (packing.PREPACKED if prepacked[0] else a, packing.PREPACKED if prepacked[1] else b)
    lower = _lower_tier(candidate, gemm, card)
    packed = asked.loads if tile.inline else loads  # mm32_scale needs no whole fours
    launches = packing.pack_launches(asked, card, packed, candidate.beside, decides=tile.kernel == "mma")
    if tile.inline:
        launches = launches[:1]
    launches.append(_multiply(candidate, asked, card, loads, lower_tier=lower is not None))
    if parts > 1:
        launches.append(fma.reduction(gemm, card))
    if lower is not None:
        launches += _lower_launches(lower, gemm, card)
    launches.append(_fallback(gemm, card, asked.products))
    first_rows = _first_rows(candidate, asked, card, loads)
    space = packing.workspace(
        gemm, asked.products, parts, first_rows, tile.inline, prepacked, None if lower is None else lower.parts
    )
    if space.lower is not None and not any(prepacked) and tile.promote > 1:
        space = replace(space, early=1, lower=replace(space.lower, early=1))
    return Plan(gemm, card, tile.kernel, tuple(launches), workspace=space)


def _lower_tier(candidate: Candidate, gemm: Gemm, card: Card) -> Candidate | None:
    """How bf16x6 computes the whole product if much of it fails the accept test of fp16x3. None if there is no such tier: tiles
    that fail are then recomputed by multiply-adds. Its launches take a few us of every call, so short products have none."""
    tile, work = candidate.tile, Work(gemm)
    if tile.kernel != "tensorcore" or tile.products != 3:
        return None
    # As if nothing was prepacked, so that packing an operand does not change the result.
    unpacked = with_prepacked(candidate, work, card, (False, False))
    if unpacked.seconds < cost.of(card).lower_tier:
        return None
    return min(candidates(tile.kernel, work, card, products=6), key=itemgetter(0))


def _lower_launches(lower: Candidate, gemm: Gemm, card: Card) -> list[Launch]:
    asked = packing.operands(gemm, 6)
    pack = packing.pack_launches(asked, card, asked.loads, beside=False, decides=True, lower=True)[1]
    launches = [pack, _multiply(lower, asked, card, asked.loads, lower=True)]
    if lower.parts > 1:
        launches.append(replace(fma.reduction(gemm, card, guarded=True), lower=True))
    return launches


def multiply_constants(
    tile: Tile, loads: tuple[int, int], split_k: bool, c_vector: bool, *, lower: bool = False, lower_tier: bool = False
) -> Constants:
    """The constants of tensorcore.cu and mma.cu after the epilogue's."""
    if tile.kernel == "mma":
        of_loads: Constants = ()
    elif tile.inline:
        of_loads = (("A_LOAD", loads[0]), ("B_LOAD", loads[1]))
    else:
        of_loads = (("A_UNIT_ROWS", packing.unit_rows(loads[0])), ("B_UNIT_ROWS", packing.unit_rows(loads[1])))
    stores = (("SPLIT_K", int(split_k)), ("C_VECTOR", int(c_vector)))
    tiers = () if tile.kernel == "mma" else (("GUARDED", int(lower)), ("LOWER_TIER", int(lower_tier)))
    return (("PRODUCTS", tile.products), *of_loads, *tile.constants, *stores, *tiers)


def _multiply(
    candidate: Candidate,
    asked: packing.Operands,
    card: Card,
    loads: tuple[int, int],
    *,
    lower: bool = False,
    lower_tier: bool = False,
) -> Launch:
    gemm, tile, split_k = asked.gemm, candidate.tile, candidate.parts > 1
    c_vector = gemm.n % 4 == 0 if split_k else gemm.out.vectorizable("col")
    last = NO_EPILOGUE if split_k else epilogue(gemm)
    constants = (*last, *multiply_constants(tile, loads, split_k, c_vector, lower=lower, lower_tier=lower_tier))
    blocks = gemm.batches * -(-gemm.m // TILE_M) * -(-gemm.n // tile.n) * candidate.parts
    persistent = tile.kernel == "tensorcore"
    most = min(card.sms, MOST_BLOCKS) if persistent else cards.MAX_GRID
    return Launch(
        f"emulated/{tile.kernel}.cu", f"mm32_{tile.kernel}", constants, tile.threads, tile.shared,
        blocks=min(blocks, most), takes_workspace=True, dependent=persistent, lower=lower,
    )  # fmt: skip


def _fallback(gemm: Gemm, card: Card, products: int) -> Launch:
    tiles = fma.fallback_tiles(gemm)
    cluster = FALLBACK_CLUSTER if card.clusters and gemm.k >= FALLBACK_SHARES else 1
    blocks = min(-(-tiles.grid(gemm) * FALLBACK_BLOCKS // cluster), card.sms * 2 // cluster) * cluster
    return Launch(
        "emulated/fallback.cu", "mm32_fallback", (("PRODUCTS", products), *tiles.constants), tiles.block, tiles.shared,
        blocks=blocks, takes_workspace=True, dependent=card.dependent_launch, fallback=True, cluster=cluster,
    )  # fmt: skip


def _first_rows(candidate: Candidate, asked: packing.Operands, card: Card, loads: tuple[int, int]) -> tuple[int, int]:
    """The rows of A and B to pack first: those of the tiles that the blocks start with. (0, 0) if the multiply waits for all of
    packing.

    They are counted if packing goes on beside the multiply, and if all blocks of mm32_pack are on the card at once: the
    multiply's blocks then start as those leave, and nothing waits for the launch. They are counted for short K too, where the
    accept test takes longer than what little a tile would gain from its neighbours.
    """
    gemm, tile = asked.gemm, candidate.tile
    at_once = packing.units(gemm, asked.matrices, loads) <= PACKERS * card.sms or gemm.k <= 512
    if tile.kernel != "tensorcore" or not (candidate.beside or tile.inline or at_once):
        return (0, 0)
    height = min(GROUP, -(-gemm.m // TILE_M))
    return (min(gemm.m, height * TILE_M), min(gemm.n, -(-card.sms // height) * tile.n))


def unshared_bytes(gemm: Gemm, kernel: str) -> int:
    """The bytes of a workspace in which no blocks share K, with a lower tier if there may be one."""
    products = packing.products_of(gemm)
    lower = 1 if kernel == "tensorcore" and products == 3 else None
    return packing.workspace(gemm, products, 1, (0, 0), lower_parts=lower).bytes


# ---------------------------------------------------------------------------------------------------------------------
# Packing an operand alone


def packed_bytes(gemm: Gemm, side: int) -> int:
    """The size in bytes of what `pack` makes of operand `side` (0: A, 1: B) of `gemm`."""
    return packing.workspace(packing.alone(gemm, side), packing.products_of(gemm), 1, (0, 0)).bytes


def emulated_kernel(card: Card) -> str:
    """The one of EMULATED_KERNELS that is for `card`. Both have the same packed form."""
    return "mma" if unsupported("tensorcore", card) else "tensorcore"


def pack(gemm: Gemm, card: Card, side: int) -> Plan:
    """The plan that packs operand `side` (0: A, 1: B) of `gemm`, for plans with `prepacked`. The operand must be one matrix. The
    workspace of the plan is what is kept.

    Raises `Unplannable`, which says why, if no emulated kernel would be chosen for it.
    """
    kernel = emulated_kernel(card)
    why = unsupported(kernel, card) or unsuited(kernel, gemm) or too_short(kernel, gemm)
    if (gemm.m, gemm.n)[side] == 0 or gemm.k == 0:
        why = "it has no element"
    if why is not None:
        raise Unplannable(why)
    alone = packing.alone(gemm, side)
    loads = (
        (packing.PREPACKED, packing.pack_load(gemm.b, "col"))
        if side
        else (packing.pack_load(gemm.a, "row"), packing.PREPACKED)
    )
    launches = packing.pack_launches(packing.operands(alone), card, loads, beside=False)
    space = packing.workspace(alone, packing.products_of(gemm), 1, (alone.m, alone.n))
    return Plan(alone, card, kernel, tuple(launches), "packing an operand", space)


# ---------------------------------------------------------------------------------------------------------------------
# What is left to other kernels


def unsuited(kernel: str, gemm: Gemm) -> str | None:
    """Why `kernel` cannot compute `gemm`, or None if it can."""
    only = "kernels 'tensorcore' and 'direct' alone have precision 'bf16x6', on compute capability 9.0"
    if kernel not in EMULATED_KERNELS:
        return only if gemm.precision == "bf16x6" else None
    if gemm.precision == "ieee":
        return "precision 'ieee' promises fp32 multiply-adds only, and it multiplies in fp16"
    if gemm.precision == "bf16x6" and kernel == "mma":
        return only
    tiles = gemm.batches * -(-gemm.m // TILE_M) * -(-gemm.n // 64) * cost.PARTS[-1]
    if max(gemm.m, gemm.n) > MAX_ROWS or gemm.k > 2**30 or tiles >= 2**31:
        return f"M and N may be {MAX_ROWS} at most, K 2^30, and tiles must be counted in 31 bits"
    chunks = -(-gemm.k // (packing.BLOCK_K * packing.CHUNK))
    if gemm.batches * (-(-gemm.m // 16) + -(-gemm.n // 16)) * chunks >= 2**31:
        return "the units of packing must be counted in 31 bits"
    return None


def too_short(kernel: str, gemm: Gemm) -> str | None:
    """Why "auto" does not take one of EMULATED_KERNELS for a sum of so few products, or None."""
    shortest = SHORTEST_K if kernel == "tensorcore" else SHORT_K
    if gemm.precision == "fp32" and gemm.k < shortest:
        return f"below K={shortest} its error may exceed an fp32 matmul's (docs/numerics.md)"
    return None
