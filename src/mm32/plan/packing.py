"""What packing a product's operands takes: how they are loaded, in which units, the launches, and the workspace that holds their
panels, what the accept test knows of them, and partial sums."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from mm32.gemm import Gemm, Matrix
from mm32.plan.card import Card
from mm32.plan.plan import Launch, Workspace
from mm32.plan.sources import PACKERS, SAMPLES, STATS_BYTES

# The K of a K-block; how many K-blocks are packed, and waited for, together (emulated/panels.cuh).
BLOCK_K, CHUNK = 64, 8
PLANE_ROW = 128  # bytes of a row in a plane of a panel: a K-block of fp16
PLANES = {1: 1, 3: 2, 6: 3}  # planes of a panel, by the number of products
# The most blocks of mm32_scale for one operand; each leaves flags and sums of squares behind the stats.
SCALE_BLOCKS = 128
PLACE_BYTES = 4  # for each row, behind the sums of squares: where its largest element lies
# Sizes of clusters of mm32_scale, whose blocks have the same rows; the K from which on there are clusters.
CLUSTERS, CLUSTERED_K = (1, 2, 4, 8), 8192
SCALE_THREADS = 512  # threads of a block of mm32_scale, if there is at most one block for each multiprocessor
DECISION_BYTES = 96 + 2 * 256 * 28 + 4 * 256 + 6 * 4 * 64  # of struct Decision
PREPACKED = 6  # the load of an operand that was packed beforehand


def pack_load(matrix: Matrix, rows: str) -> int:
    """How mm32_pack loads an operand (pack.cu): 0 and 2 are 16 bytes at a time, along its rows or along K; 4 and 5 are the same,
    from the boundary before a line that is not aligned; 1 is 4 bytes at a time."""
    along_k = "col" if rows == "row" else "row"
    if matrix.vectorizable(rows):
        return 0
    if matrix.vectorizable(along_k):
        return 2
    of_rows, of_k = (matrix.row, matrix.col) if rows == "row" else (matrix.col, matrix.row)
    return 5 if of_k == 1 else 4 if of_rows == 1 else 1


def inline_load(load: int, whole_fours: bool) -> int:
    """How a multiply that packs inline loads an operand (inline_pack.cuh): 16 bytes at a time, which needs whole fours, or 4."""
    along_k = load in (2, 5)
    return (2 if along_k else 0) + int(load not in (0, 2) or not whole_fours)


def unit_rows(load: int) -> int:
    """Rows that mm32_pack packs at a time (UNIT_ROWS in panels.cuh); 0: it does not pack the operand."""
    return 0 if load == PREPACKED else 64 if load < 2 else 16


def products_of(gemm: Gemm) -> int:
    return {"tf32": 1, "bf16x6": 6}.get(gemm.precision, 3)


class Operands(NamedTuple):
    """A and B as packing sees them.

    `matrices`: how many there are of each, one if the whole batch has the same. `loads`: those of mm32_pack. `inline_loads`:
    those of a multiply that packs inline, whose 16-byte loads need whole fours along the contiguous axis. `packed_bytes`: the
    bytes that packing each moves.
    """

    gemm: Gemm
    products: int
    matrices: tuple[int, int]
    loads: tuple[int, int]
    inline_loads: tuple[int, int]
    packed_bytes: tuple[float, float]

    @property
    def k_blocks(self) -> int:
        return -(-self.gemm.k // BLOCK_K)


def operands(gemm: Gemm, products: int | None = None) -> Operands:
    """The `Operands` of a product. `products`: of another scheme than the precision asks for."""
    products = products_of(gemm) if products is None else products
    matrices = (gemm.batches if any(gemm.a.batch) else 1, gemm.batches if any(gemm.b.batch) else 1)
    loads = (pack_load(gemm.a, "row"), pack_load(gemm.b, "col"))
    inline_loads = (
        inline_load(loads[0], (gemm.k if loads[0] in (2, 5) else gemm.m) % 4 == 0),
        inline_load(loads[1], (gemm.k if loads[1] in (2, 5) else gemm.n) % 4 == 0),
    )
    if {4, 5} & {*loads}:  # aligned lines along rows are then read by the same piece of code, in units of the same size
        loads = (4 if loads[0] == 0 else loads[0], 4 if loads[1] == 0 else loads[1])
    moved = 4.0 + 2.0 * PLANES[products]  # bytes an element: read, and written as 16-bit numbers
    packed = (moved * matrices[0] * gemm.m * gemm.k, moved * matrices[1] * gemm.n * gemm.k)
    return Operands(gemm, products, matrices, loads, inline_loads, packed)


def units(gemm: Gemm, matrices: tuple[int, int], loads: tuple[int, int]) -> int:
    """How many units mm32_pack has to pack."""
    chunks = -(-gemm.k // (BLOCK_K * CHUNK))
    of_chunk = 0
    for count, rows, load in zip(matrices, (gemm.m, gemm.n), loads, strict=True):
        if load != PREPACKED:
            of_chunk += count * -(-rows // unit_rows(load))
    return chunks * of_chunk


def scale_blocks(matrices: int, rows: int) -> int:
    """The blocks of mm32_scale for an operand: one for every 32 rows, up to SCALE_BLOCKS."""
    return min(matrices * -(-rows // 32), SCALE_BLOCKS)


def pack_launches(
    asked: Operands, card: Card, loads: tuple[int, int], beside: bool, *, decides: bool = False, lower: bool = False
) -> list[Launch]:
    """The launches that make the panels and stats of the operands that are not prepacked. `decides`: whether they decide which
    tier computes the product; otherwise the multiply does. `lower`: whether they belong to the lower tier."""
    gemm, matrices = asked.gemm, asked.matrices
    constants = (("A_LOAD", loads[0]), ("B_LOAD", loads[1]), ("PRODUCTS", asked.products))
    tiers = (("GUARDED", int(lower)), ("DECIDES", int(decides)))
    blocks = 0
    for count, rows, load in zip(matrices, (gemm.m, gemm.n), loads, strict=True):
        blocks += 0 if load == PREPACKED else scale_blocks(count, rows)
    # Some rows have to be read whole, by whatever threads mm32_scale has. So its blocks have more threads if there are no more
    # of them than multiprocessors, and for long K several blocks have the same rows (256 x 36864 x 256 by 16 blocks took 300
    # us). But mm32_pack's blocks must have room beside them. With no room, those begin on a few multiprocessors, and 2048 x
    # 8192 x 4096 took a fifth longer; with room for one block instead of two, 2048^3 took 1 % longer.
    threads = 256 if blocks > card.sms else SCALE_THREADS
    several = card.clusters and gemm.k >= CLUSTERED_K
    cluster = max((c for c in CLUSTERS if blocks * c <= card.sms), default=1) if several else 1
    # At least one: it says that all is packed.
    packers = min(max(units(gemm, matrices, loads), 1), card.sms * (1 if beside else PACKERS))
    source, dependent = "emulated/pack.cu", card.dependent_launch
    return [
        Launch(
            source, "mm32_scale", (*constants, *tiers), threads, 0,
            blocks=max(blocks, 1) * cluster, takes_workspace=True, cluster=cluster,
        ),
        Launch(
            source, "mm32_pack", (*constants, *tiers), 256, 0,
            blocks=packers, takes_workspace=True, dependent=dependent, lower=lower,
        ),
    ]  # fmt: skip


def alone(gemm: Gemm, side: int) -> Gemm:
    """The problem of packing one operand: the other one has no rows."""
    m, n = (gemm.m, 0) if side == 0 else (0, gemm.n)
    return replace(gemm, m=m, n=n, batch=(), a=replace(gemm.a, batch=()), b=replace(gemm.b, batch=()))


def workspace(
    gemm: Gemm,
    products: int,
    parts: int,
    first_rows: tuple[int, int],
    inline: bool = False,
    prepacked: tuple[bool, bool] = (False, False),
    lower_parts: int | None = None,
) -> Workspace:
    """The workspace: panels, stats and counters of the operands that are not prepacked, the decision, and partial sums, each at
    a multiple of 256 bytes. A prepacked operand's offsets are those of packing it alone (emulated.pack). The lower tier (with
    `lower_parts`) has its panels in the place of those of fp16x3, which are done with, and packs prepacked operands too."""
    blocks, matrices = -(-gemm.k // BLOCK_K), operands(gemm).matrices
    sides = list(zip(matrices, (gemm.m, gemm.n), prepacked, strict=True))
    end = 0

    def place(size: int) -> int:
        """The offset of the next part, of `size` bytes."""
        nonlocal end
        at = end
        end += -(-size // 256) * 256
        return at

    def panel(count: int, rows: int, planes: int) -> int:
        return count * blocks * planes * -(-rows // 8) * 8 * PLANE_ROW

    panels, stats, ready = [], [], []
    for count, rows, done in sides:
        own = 0 if inline or done else panel(count, rows, PLANES[products])
        panels.append(place(own if lower_parts is None else max(own, panel(count, rows, PLANES[6]))))
    left = [(count, 0 if done else rows) for count, rows, done in sides]
    for count, rows in left:
        of_rows = count * rows * (STATS_BYTES + PLACE_BYTES)
        stats.append(place(of_rows + 4 * SCALE_BLOCKS + 4 * SAMPLES * scale_blocks(count, rows)))
    for count, rows in left:
        ready.append(place(count * -(-rows // 128) * -(-blocks // CHUNK) * 4))
    decision = place(DECISION_BYTES)
    most = max(parts, lower_parts or 1)
    partial_sums = place(4 * most * gemm.batches * gemm.m * gemm.n if most > 1 else 0)
    lower_panels = (panels[0], panels[1])
    for side in (side for side in (0, 1) if prepacked[side]):
        kept = workspace(alone(gemm, side), products, 1, (0, 0))
        panels[side], stats[side], ready[side] = kept.panels[side], kept.stats[side], kept.ready[side]
    space = Workspace(
        end, (panels[0], panels[1]), (stats[0], stats[1]), (ready[0], ready[1]), decision, partial_sums, matrices, parts,
        first_rows, prepacked=prepacked,
    )  # fmt: skip
    if lower_parts is None:
        return space
    return replace(
        space, lower=replace(space, panels=lower_panels, own_panels=True, parts=lower_parts, first_rows=(0, 0))
    )
