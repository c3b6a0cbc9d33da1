"""The kernel direct: bf16x6 products in one launch, for products too small for packing to be worth it (emulated/direct.cu).

Every block splits what it reads, so there is no workspace; where tiles are few, the blocks of a cluster share K and add up their
sums in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mm32.gemm import Gemm
from mm32.plan import cost
from mm32.plan.card import Card
from mm32.plan.cost import Work
from mm32.plan.emulated import BLOCK_K, MAX_ROWS, operands
from mm32.plan.plan import Constants, Launch, Plan, epilogue

CLUSTERS = (1, 2, 4, 8)  # blocks that share K; more than 8 are not on every card
LONGEST_STRIDE = 2**23  # elements: offsets within a tile have 32 bits
THREADS = 384
LINES = 3 * 128  # bytes of 64 of K of a column of B, split in three


@dataclass(frozen=True)
class Tile:
    """A tile of m x n, with `stages` of K-blocks of B in shared memory."""

    m: int
    n: int
    stages: int

    k = BLOCK_K

    @property
    def label(self) -> str:
        return f"direct.{self.m}x{self.n}"

    def shared(self, loads: tuple[int, int]) -> int:
        """Bytes of dynamic shared memory of a block: split B, and raw tiles of 16 x 64 of both operands."""
        a, b = (4160 if load < 2 else 4096 for load in loads)
        return self.stages * self.n * LINES + 8 * 2 * a + 4 * (self.n // 64 + 1) * b + 1024


TILES = (Tile(128, 128, 2), Tile(128, 64, 3), Tile(64, 128, 2), Tile(64, 64, 4))


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
    scattered = any(load % 2 for load in operands(gemm).inline_loads)
    made = []
    for tile in TILES:
        tiles = gemm.batches * -(-gemm.m // tile.m) * -(-gemm.n // tile.n)
        for cluster in CLUSTERS:
            if cluster > 1 and (tiles * cluster > card.sms or cluster > work.k / BLOCK_K):
                break
            made.append(Candidate(model.direct(work, tile, tiles, cluster, scattered), tile, cluster))
    return made


def assemble(candidate: Candidate, gemm: Gemm, card: Card) -> Plan:
    """The plan of a candidate."""
    tile, cluster = candidate.tile, candidate.cluster
    loads = operands(gemm).inline_loads
    tiles = gemm.batches * -(-gemm.m // tile.m) * -(-gemm.n // tile.n)
    constants: Constants = (
        *epilogue(gemm), ("PRODUCTS", 6), ("A_LOAD", loads[0]), ("B_LOAD", loads[1]),
        ("TILE_M", tile.m), ("TILE_N", tile.n), ("STAGES", tile.stages), ("CLUSTER", cluster),
        ("C_VECTOR", int(gemm.out.vectorizable("col"))),
    )  # fmt: skip
    blocks = min(card.sms // cluster, tiles) * cluster
    launch = Launch("emulated/direct.cu", "mm32_direct", constants, THREADS, tile.shared(loads), blocks=blocks)
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
