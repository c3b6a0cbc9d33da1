"""The kernel direct: bf16x6 products in one launch, for products too small for packing to be worth it (emulated/direct.cu).

Every block splits what it reads, so there is no workspace; where tiles are few, the blocks of a cluster share K and add up their
sums in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from mm32.gemm import Gemm
from mm32.plan import cost
from mm32.plan.card import Card
from mm32.plan.cost import Work
from mm32.plan.emulated import MAX_ROWS
from mm32.plan.packing import BLOCK_K, operands
from mm32.plan.plan import Constants, Launch, Plan, epilogue

CLUSTERS = (1, 2, 4, 8)  # numbers of blocks that share K; not every card can have more than 8
LONGEST_STRIDE = 2**23  # elements; strides are less, because offsets within a tile have 32 bits
THREADS = 384
HALF_K = BLOCK_K // 2  # the K of a K-block, if there is no more of K
LINES = 3 * 128  # bytes of a column of B over 64 of K, split in three
# Bytes of a raw tile of 16 x 64 in shared memory, by load (emulated/raw_tile.cuh). Loads 4 and 5 replace 1 and 3, which copy 4
# bytes at a time, where lines are contiguous. That leaves no case for 3.
RAW = {0: 4160, 1: 4160, 2: 4096, 4: 5184, 5: 4352}


@dataclass(frozen=True)
class Tile:
    """A tile of m x n, with `stages` K-blocks of B in shared memory.

    `swapped`: whether its rows are columns of C; A and B change places then. `kept`: whether B, over all of K, stays in shared
    memory for the tiles below one another.
    """

    m: int
    n: int
    stages: int
    swapped: bool = False
    kept: bool = False

    k = BLOCK_K

    @property
    def label(self) -> str:
        return f"direct.{self.m}x{self.n}"

    def shared(self, loads: tuple[int, int]) -> int:
        """Bytes of dynamic shared memory of a block: split B, and raw tiles of both operands."""
        slots = 4 * (max(1, self.n // 64) + 1)
        return self.stages * self.n * LINES + 8 * 2 * RAW[loads[0]] + slots * RAW[loads[1]] + 1024

    def loads(self, wanted: tuple[int, int], card: Card) -> tuple[int, int]:
        """How the operands are copied: as wanted, or with A 4 bytes at a time, if raw tiles with shifts take too much room."""
        static = 56 * self.stages + 640
        return wanted if self.shared(wanted) + static <= card.shared_memory else (1, wanted[1])

    def block_k(self, k: int) -> int:
        """How much of K a K-block has."""
        return self.k if k > HALF_K else HALF_K

    def across(self, gemm: Gemm) -> tuple[int, int]:
        """The sizes that its rows and columns cover: M and N, or N and M if it is swapped."""
        return (gemm.n, gemm.m) if self.swapped else (gemm.m, gemm.n)


TILES = (Tile(128, 128, 2), Tile(128, 64, 3), Tile(64, 64, 4))  # 64 x 128 was never the fastest
# For products of few rows or columns: the operand of the longer side takes the place of A, which is split where it is multiplied.
NARROW = (Tile(128, 32, 4), Tile(64, 32, 4))
SEVERAL_TURNS = 4
FEW = range(2, 65)  # rows or columns; vectors are for simt
SHORT = Tile(64, 128, 2, kept=True)  # for K of up to two blocks, where there are several tiles below one another
LEAST_KEPT = 16  # the least K with which B is kept
ALL = (*TILES, *NARROW, *(replace(tile, swapped=True) for tile in NARROW), SHORT)


def loads_of(gemm: Gemm) -> tuple[int, int]:
    """How A and B are copied: as by the inline loads of the emulated kernels. Where those are 4 bytes at a time only because
    lines are not aligned, copies are pieces of 16 bytes from the boundary before (4 and 5)."""

    def load(inline: int, along_rows: int, along_k: int) -> int:
        if inline % 2 == 0 or (along_rows if inline == 1 else along_k) != 1:
            return inline
        return 4 if inline == 1 else 5

    a, b = operands(gemm).inline_loads
    return load(a, gemm.a.row, gemm.a.col), load(b, gemm.b.col, gemm.b.row)


class Candidate(NamedTuple):
    """A tile, and how many blocks share K."""

    seconds: float
    tile: Tile
    cluster: int

    @property
    def label(self) -> str:
        """Its name in records."""
        return f"{self.tile.label.replace('.', ' ', 1)}/{self.cluster}"


def candidates(work: Work, card: Card) -> list[Candidate]:
    """The ways to compute a product that is not empty."""
    gemm, model = work.gemm, cost.of(card)
    loads = loads_of(gemm)
    copies = "scattered" if 1 in loads else "shifted" if {4, 5} & {*loads} else "aligned"
    made = []
    # Of ways that memory bounds equally, the one whose tiles reach the least beyond C comes first: 2048 x (64 x 64 x 64) takes 44
    # us by 64 x 64, and 54 us by 128 x 64.
    for tile in sorted(tiles_for(gemm), key=lambda tile: _tiles(gemm, tile) * tile.m * tile.n):
        tiles = _tiles(gemm, tile)
        if tile.kept and tiles < 2 * card.sms:
            continue  # B would not be used again: 1032 x 40 x 840 took 12 us, and 10 us by other tiles
        for cluster in CLUSTERS:
            # Larger clusters leave multiprocessors idle: 32 clusters of four, and 16 of eight, took two turns on 132
            # multiprocessors. Two blocks also share a tile where there are more tiles, if fewer are idle in the last turn then.
            room = SEVERAL_TURNS * card.sms if cluster <= 2 else card.sms * 7 // 8
            if cluster > 1 and (tile.kept or tiles * cluster > room or cluster > work.k / BLOCK_K):
                break
            made.append(Candidate(model.direct(work, tile, tiles, cluster, copies), tile, cluster))
    return made


def tiles_for(gemm: Gemm) -> tuple[Tile, ...]:
    """The tiles that a product may be computed by."""
    # SHORT is left out where C is not aligned, because stores then take longer than all else: 31664 x 32 x 6627 took 760 us, and
    # 560 us by 128 x 128. For K below LEAST_KEPT it has not been measured beside torch's product.
    if LEAST_KEPT <= gemm.k <= SHORT.stages * BLOCK_K and gemm.m >= 4 * SHORT.m and gemm.out.vectorizable("col"):
        return (*TILES, SHORT)
    if min(gemm.m, gemm.n) not in FEW:
        return TILES
    return (*TILES, *(replace(tile, swapped=gemm.m < gemm.n) for tile in NARROW))


def _tiles(gemm: Gemm, tile: Tile) -> int:
    rows, columns = tile.across(gemm)
    return gemm.batches * -(-rows // tile.m) * -(-columns // tile.n)


def assemble(candidate: Candidate, gemm: Gemm, card: Card) -> Plan:
    """The plan of a candidate."""
    tile, cluster = candidate.tile, candidate.cluster
    of_a, of_b = loads_of(gemm)
    loads = tile.loads((of_b, of_a) if tile.swapped else (of_a, of_b), card)
    tiles = _tiles(gemm, tile)
    # While K is short, the ring holds several tiles, and one group of consumers can store while the other multiplies.
    short = tile.m == 64 and cluster == 1 and tiles > card.sms and gemm.k <= tile.stages * BLOCK_K
    constants: Constants = (
        *epilogue(gemm), ("PRODUCTS", 6), ("A_LOAD", loads[0]), ("B_LOAD", loads[1]),
        ("TILE_M", tile.m), ("TILE_N", tile.n), ("STAGES", tile.stages),
        ("SWAPPED", int(tile.swapped)), ("KEPT", int(tile.kept)), ("BLOCK_K", tile.block_k(gemm.k)),
        ("CLUSTER", cluster), ("ALTERNATE", int(short or tile.kept)),
        ("C_VECTOR", int(not tile.swapped and gemm.out.vectorizable("col"))),
    )  # fmt: skip
    blocks = min(card.sms // cluster, tiles) * cluster
    shared = tile.shared(loads)
    launch = Launch("emulated/direct.cu", "mm32_direct", constants, THREADS, shared, blocks=blocks)
    return Plan(gemm, card, "direct", (launch,))


def unsuited(gemm: Gemm) -> str | None:
    """Why the kernel cannot compute `gemm`, or None if it can."""
    if gemm.precision not in ("fp32", "bf16x6"):
        return f"it computes bf16x6, and precision {gemm.precision!r} asks for something else"
    if max(gemm.a.row, gemm.a.col, gemm.b.row, gemm.b.col) >= LONGEST_STRIDE:
        return f"a stride of A or B is {LONGEST_STRIDE} or more"
    tiles = gemm.batches * -(-gemm.m // 64) * -(-gemm.n // 64)
    if max(gemm.m, gemm.n) > MAX_ROWS or gemm.k > 2**30 or tiles >= 2**31:
        return f"M and N may be {MAX_ROWS} at most, K 2^30, and tiles must be counted in 31 bits"
    return None
