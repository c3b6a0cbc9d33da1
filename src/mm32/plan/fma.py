"""The kernels that compute by fp32 multiply-adds: naive, dot, tiled, and simt (simt.cu; narrow.cu for M or N up to 16).

For simt there are three steps, each a function of its own: list the candidates (a tile and how K is shared), score each
(cost.py), and assemble the plan of one: the launches, constants and workspace that it needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from mm32.gemm import Gemm, Matrix
from mm32.plan import card as cards
from mm32.plan import cost
from mm32.plan.card import Card
from mm32.plan.cost import Work
from mm32.plan.plan import NO_EPILOGUE, Constants, Launch, Plan, Workspace, epilogue

# naive, dot and tiled are the first three rungs of a ladder that shows how a kernel gets fast. "auto" takes one only on a card
# where they were timed, for a product of no more FLOP than this, where the launch is what counts. For larger products simt is
# at least as fast.
TRIVIAL = 2**24
LONG_K = 8192  # beyond it, a plain fp32 sum's error would exceed that of any fp32 matmul in use
MOST_PARTIAL_SUMS = 2**28  # 1 GiB
MOST_PARTS = 256
STREAM_K = 0  # stands for stream-K in the place of the number of parts


# ---------------------------------------------------------------------------------------------------------------------
# naive, dot, tiled


def naive(work: Work, model: cost.Model) -> float:
    """Estimated seconds of kernel "naive"."""
    gemm = work.gemm
    along_n = gemm.b.col == 1 or (gemm.b.col == 0 and gemm.n > 1)
    return model.naive(work, coalesced=along_n or gemm.a.row == 1)


def dot(work: Work, model: cost.Model) -> float:
    """Estimated seconds of kernel "dot". A strided element costs a 32-byte sector of its own."""
    return model.dot(work, sum(1 if stride == 1 else 8 for stride in (work.gemm.a.col, work.gemm.b.row)))


def tiled(work: Work, model: cost.Model) -> float:
    """Estimated seconds of kernel "tiled"."""
    return model.tiled(work)


def assemble_rung(kernel: str, gemm: Gemm, card: Card) -> Plan:
    """The plan of "naive", "dot" or "tiled": one launch, no workspace."""
    last = epilogue(gemm)
    if kernel == "naive":
        along_m = gemm.b.col != 1 and gemm.a.row == 1
        launch = Launch("fma/naive.cu", "mm32_naive", (*last, ("ALONG_M", int(along_m))), 128, 0, (128,))
    elif kernel == "dot":
        launch = Launch("fma/dot.cu", "mm32_dot", last, 256, 0, (1,))
    else:
        constants = (*last, ("A_ALONG_K", int(gemm.a.col == 1)), ("B_ALONG_K", int(gemm.b.row == 1)))
        launch = Launch("fma/tiled.cu", "mm32_tiled", constants, 1024, 0, (32, 32))
    return Plan(gemm, card, kernel, (launch,))


# ---------------------------------------------------------------------------------------------------------------------
# What simt is made of


@dataclass(frozen=True)
class SimtTile:
    """A block tile of simt.cu, m x n x k, of which a thread keeps thread_m x thread_n sums; `blocks` fit on a multiprocessor.

    `promote`: how many tiles of K are between promotions of the sums to a second set of registers, 0 for none. `copy_row`:
    when it copies the next tiles in (simt.cuh). `aligned`: whether both operands have to be loaded 16 bytes at a time.
    """

    m: int
    n: int
    k: int
    thread_m: int
    thread_n: int
    stages: int
    blocks: int
    promote: int = 0
    copy_row: int = 5
    aligned: bool = False
    label: str = ""

    @property
    def threads(self) -> int:
        return 32 * (self.m // (8 * self.thread_m)) * (self.n // (4 * self.thread_n))

    def shared(self, loads: tuple[int, int]) -> int:
        """Bytes of shared memory of a block, by how its operands are loaded: the ring of stages, and a queue for each operand
        that is transposed."""
        ring = 4 * self.stages * self.k * (self.m + self.n + 8)
        queued = self.m * (loads[0] == 2) + self.n * (loads[1] == 2)
        return ring + 4 * (self.stages - 1) * self.k * queued

    def resident(self, loads: tuple[int, int], card: Card) -> int:
        """Blocks that a multiprocessor holds: fewer than `blocks` where it has less shared memory. Each block takes 1 KB more
        than it asks for, and a multiprocessor has 1 KB more than a block may have."""
        return min(self.blocks, (card.shared_memory + 1024) // (self.shared(loads) + 1024))


SIMT_TILES = (
    SimtTile(256, 128, 16, 16, 8, 3, 1, copy_row=0, aligned=True, label="simt.256x128"),
    SimtTile(128, 64, 16, 8, 8, 3, 3, label="simt.128x64"),
    SimtTile(64, 64, 16, 8, 8, 3, 5, label="simt.64x64"),
)
# Its sums are promoted every 128 of K. It is for K beyond LONG_K, and for the fallback, whose error must stand beside the error
# of torch, which splits K.
ACCURATE_TILE = SimtTile(128, 64, 16, 8, 8, 3, 2, promote=8, label="simt.128x64p")


@dataclass(frozen=True)
class NarrowForm:
    """A form of narrow.cu for a narrow operand of up to `width` columns and a wide one loaded along K or along its rows. A thread
    issues rows x depth (along rows: depth) 16-byte loads at once; `blocks` fit on a multiprocessor. `lanes` of a warp lie along
    rows, and the others share K (along K all of them do)."""

    width: int
    along_k: bool
    rows: int
    depth: int
    blocks: int
    lanes: int = 32

    @property
    def label(self) -> str:
        """The name that its shares have."""
        return f"narrow.{self.tile}x{self.width}.{'k' if self.along_k else 'rows'}.{self.depth}"

    @property
    def tile(self) -> int:
        """Rows of the wide operand that a block takes."""
        return (8 if self.along_k else self.lanes) * self.rows

    @property
    def piece(self) -> int:
        """The least K that a block gets where blocks share K: parts are whole pieces."""
        return max(256, 128 * self.depth) if self.along_k else 64


# By width. A multiprocessor's share of an H200's memory is 30 bytes a ns; with a latency of 1 us it needs some 30 KB in flight. A
# block has 16 KB in flight with 4 loads a thread, and 32 KB with 8. There are as many rows for each load of the narrow operand as
# registers allow.
NARROW_FORMS = (
    NarrowForm(1, True, 2, 4, 2),
    NarrowForm(2, True, 4, 2, 2),
    NarrowForm(4, True, 4, 2, 2),
    NarrowForm(8, True, 4, 1, 2),
    NarrowForm(16, True, 8, 1, 1),
    NarrowForm(1, False, 4, 4, 2),
    NarrowForm(1, False, 4, 4, 2, 8),
    NarrowForm(2, False, 4, 4, 2),
    NarrowForm(2, False, 4, 4, 2, 8),
    NarrowForm(4, False, 4, 4, 2),
    NarrowForm(4, False, 4, 4, 2, 8),
    NarrowForm(8, False, 4, 4, 2, 16),
    NarrowForm(8, False, 4, 8, 1, 16),
    NarrowForm(16, False, 4, 8, 1),
    NarrowForm(16, False, 4, 8, 1, 16),
)
# Sizes of clusters whose blocks share K.
NARROW_CLUSTERS = (2, 4, 8)
NARROW = 16  # the largest width


def _load(matrix: Matrix, along_rows: str, along_k: str, rows: int, k: int) -> int:
    """How simt loads an operand (simt.cuh): 0 and 2 are 16 bytes at a time, along its rows or along K, 1 and 3 are 4."""
    if matrix.vectorizable(along_rows) and rows % 4 == 0:
        return 0
    if matrix.vectorizable(along_k) and k % 4 == 0:
        return 2
    return 3 if (matrix.col if along_k == "col" else matrix.row) == 1 else 1


def loads(gemm: Gemm) -> tuple[int, int]:
    """How simt loads A and B."""
    return _load(gemm.a, "row", "col", gemm.m, gemm.k), _load(gemm.b, "col", "row", gemm.n, gemm.k)


# ---------------------------------------------------------------------------------------------------------------------
# simt: candidates, scores


class Candidate(NamedTuple):
    """One way for simt to compute a product: a tile and the number of blocks that share K, 1 for none or STREAM_K; or a form
    of narrow.cu and how many blocks share K. `cluster`: whether these are a cluster, which adds up its sums itself."""

    seconds: float
    tile: SimtTile | NarrowForm
    parts: int
    cluster: bool = False

    @property
    def label(self) -> str:
        """Its name in records."""
        if isinstance(self.tile, NarrowForm):
            return f"simt {self.tile.label}/{'cluster ' if self.cluster else ''}{self.parts}"
        return f"{self.tile.label.replace('.', ' ')}/{'stream-K' if self.parts == STREAM_K else self.parts}"


def candidates(work: Work, card: Card, *, workspace: bool = True) -> list[Candidate]:
    """simt's ways to compute a product, each scored; without `workspace`, only those that need none."""
    model, loaded = cost.of(card), loads(work.gemm)
    unaligned = loaded[0] % 2 == 1 or loaded[1] % 2 == 1
    share = workspace and work.results > 0
    usable = [
        tile
        for tile in (*SIMT_TILES, ACCURATE_TILE)
        if tile.shared(loaded) <= card.shared_memory and not (tile.aligned and unaligned)
    ]
    made, least = [], math.inf
    for tile in usable:
        tiles = work.batches * -(-work.m // tile.m) * -(-work.n // tile.n)
        for parts in _parts(work, tile, share):
            if model.add_up(work, parts, model.simt_memory) > least:
                break  # more parts take longer to add up than another candidate takes
            seconds = model.simt(work, tile, tiles, parts, unaligned)
            made.append(Candidate(seconds, tile, parts))
            least = min(least, seconds)
        if share and work.k > 0 and _accurate(tile) == (work.k > LONG_K):
            resident = tile.resident(loaded, card)
            whole, rest = divmod(tiles, card.sms * resident)
            if whole and rest:
                made.append(Candidate(model.stream_k(work, tile, tiles, resident, unaligned), tile, STREAM_K))
    if work.results > 0 and work.k > 0 and min(work.m, work.n) <= NARROW:
        made += _narrow_candidates(work, card, loaded, share)
    return made


def _accurate(tile: SimtTile) -> bool:
    return tile.promote > 0


def _parts(work: Work, tile: SimtTile, share: bool) -> list[int]:
    """The numbers of blocks that may share K with this tile: the accurate tile adds up sums longer than LONG_K, the others those
    up to LONG_K."""
    accurate = _accurate(tile)
    return [
        parts
        for parts in (cost.PARTS if share else (1,))
        if accurate == (work.k > LONG_K * parts)
        and (parts == 1 or (parts * tile.k <= work.k and parts * work.results <= MOST_PARTIAL_SUMS))
    ]


def _wide(work: Work) -> tuple[int, int, int]:
    """For narrow.cu: the side of the wide operand (of two that may be it, the one with more rows), its rows, and those of the
    narrow one."""
    return (0, work.m, work.n) if work.n <= work.m else (1, work.n, work.m)


def _narrow_candidates(work: Work, card: Card, loaded: tuple[int, int], share: bool) -> list[Candidate]:
    side, rows, real = _wide(work)
    wide_row, wide_k = (work.gemm.a.row, work.gemm.a.col) if side == 0 else (work.gemm.b.col, work.gemm.b.row)
    vector = loaded[side] % 2 == 0
    sectors = 8 if loaded[side] == 1 and wide_row > 1 and rows > 1 and wide_k != 0 else 1
    width = next(form.width for form in NARROW_FORMS if form.width >= real)
    model, made = cost.of(card), []
    for form in NARROW_FORMS:
        if form.width != width or form.along_k != (loaded[side] >= 2):
            continue
        tiles, pieces = work.batches * -(-rows // form.tile), -(-work.k // form.piece)
        ways = [(1, False)]
        ways += [(parts, True) for parts in NARROW_CLUSTERS if card.clusters and parts <= pieces]
        ways += [
            (parts, False)
            for parts in (*cost.PARTS, MOST_PARTS)
            if share and 1 < parts <= pieces and parts * work.results <= MOST_PARTIAL_SUMS
        ]
        made += [
            Candidate(model.narrow(work, form, tiles, parts, cluster, vector, sectors), form, parts, cluster)
            for parts, cluster in ways
        ]
    return made


# ---------------------------------------------------------------------------------------------------------------------
# simt: plans


def assemble(candidate: Candidate, gemm: Gemm, card: Card) -> Plan:
    """The plan of a candidate."""
    if isinstance(candidate.tile, NarrowForm):
        return _assemble_narrow(candidate.tile, candidate.parts, candidate.cluster, gemm, card)
    tile, parts = candidate.tile, candidate.parts
    if parts == STREAM_K:
        return _assemble_stream_k(tile, gemm, card)
    shared, constants = tile.shared(loads(gemm)), _constants(gemm, tile, split_k=parts > 1)
    if parts == 1:
        return Plan(gemm, card, "simt", (_whole(tile, gemm),))
    blocks = min(_count(tile, gemm) * parts, cards.MAX_GRID)
    launch = Launch("fma/simt.cu", "mm32_simt", constants, tile.threads, shared, blocks=blocks, takes_workspace=True)
    return _split_k(launch, parts, gemm, card)


def fallback_tiles(gemm: Gemm) -> Launch:
    """The launch of simt whose tiles the emulated kernels' fallback recomputes: accurate, K not shared."""
    return _whole(ACCURATE_TILE, gemm)


def reduction(gemm: Gemm, card: Card, *, guarded: bool = False) -> Launch:
    """The launch that adds up partial sums and applies the epilogue. On cards with dependent launches, its blocks start as those
    of the launch before it leave. `guarded`: whether it belongs to the lower tier of an emulated product."""
    blocks = min(-(-gemm.batches * gemm.m * gemm.n // 256), card.sms * 8)
    return Launch(
        "common/reduce.cu", "mm32_reduce", (*epilogue(gemm), ("GUARDED", int(guarded))), 256, 0,
        blocks=blocks, takes_workspace=True, dependent=card.dependent_launch,
    )  # fmt: skip


def _count(tile: SimtTile, gemm: Gemm) -> int:
    return gemm.batches * -(-gemm.m // tile.m) * -(-gemm.n // tile.n)


def _whole(tile: SimtTile, gemm: Gemm) -> Launch:
    constants = _constants(gemm, tile)
    return Launch("fma/simt.cu", "mm32_simt", constants, tile.threads, tile.shared(loads(gemm)), (tile.m, tile.n))


def _split_k(launch: Launch, parts: int, gemm: Gemm, card: Card) -> Plan:
    """The plan in which blocks of `launch` share K, and another launch adds up their partial sums."""
    space = _sums(parts * gemm.batches * gemm.m * gemm.n, parts)
    return Plan(gemm, card, "simt", (launch, reduction(gemm, card)), workspace=space)


def _sums(floats: int, parts: int) -> Workspace:
    """A workspace that holds sums and nothing else."""
    none = (0, 0)
    return Workspace(4 * floats, none, none, none, 0, 0, (1, 1), parts, none)


def _assemble_stream_k(tile: SimtTile, gemm: Gemm, card: Card) -> Plan:
    """The plan with stream-K: all blocks share the tiles beyond whole waves, and mm32_fixup adds up their partial tiles
    (fma/stream_k.cuh)."""
    loaded = loads(gemm)
    blocks = card.sms * tile.resident(loaded, card)
    rest = _count(tile, gemm) % blocks
    constants = _constants(gemm, tile, stream_k=True)
    launch = Launch(
        "fma/simt.cu", "mm32_simt", constants, tile.threads, tile.shared(loaded), blocks=blocks, takes_workspace=True
    )
    slices = rest * tile.m * tile.n // (4 * tile.threads)
    fixup = Launch(
        "fma/fixup.cu", "mm32_fixup", constants, tile.threads, 0,
        blocks=slices, takes_workspace=True, dependent=card.dependent_launch,
    )  # fmt: skip
    return Plan(gemm, card, "simt", (launch, fixup), workspace=_sums((blocks + rest) * tile.m * tile.n, blocks))


def _assemble_narrow(form: NarrowForm, parts: int, cluster: bool, gemm: Gemm, card: Card) -> Plan:
    side, rows, _ = _wide(Work(gemm))
    shared = 0 if parts == 1 else 2 if cluster else 1
    last = NO_EPILOGUE if shared == 1 else epilogue(gemm)
    constants = (*last, *narrow_constants(form, side, loads(gemm)[side], shared))
    if shared == 0:
        unit = (form.tile, form.width) if side == 0 else (form.width, form.tile)
        return Plan(gemm, card, "simt", (Launch("fma/narrow.cu", "mm32_narrow", constants, 256, 0, unit),))
    tiles = gemm.batches * -(-rows // form.tile)
    if shared == 2:
        blocks = max(1, min(tiles, cards.MAX_GRID // parts)) * parts
        launch = Launch("fma/narrow.cu", "mm32_narrow", constants, 256, 0, blocks=blocks, cluster=parts)
        return Plan(gemm, card, "simt", (launch,))
    blocks = min(tiles * parts, cards.MAX_GRID)
    launch = Launch("fma/narrow.cu", "mm32_narrow", constants, 256, 0, blocks=blocks, takes_workspace=True)
    return _split_k(launch, parts, gemm, card)


def _constants(gemm: Gemm, tile: SimtTile, *, split_k: bool = False, stream_k: bool = False) -> Constants:
    vector = gemm.n % 4 == 0 and (split_k or gemm.out.vectorizable("col"))
    last = NO_EPILOGUE if split_k else epilogue(gemm)
    return (*last, *simt_constants(tile, *loads(gemm), vector, split_k=split_k, stream_k=stream_k))


def simt_constants(
    tile: SimtTile, a_load: int, b_load: int, c_vector: bool, *, split_k: bool = False, stream_k: bool = False
) -> Constants:
    """The constants of simt.cu and fixup.cu after the epilogue's (simt.cuh)."""
    return (
        ("A_LOAD", a_load),
        ("B_LOAD", b_load),
        ("C_VECTOR", int(c_vector)),
        ("SPLIT_K", int(split_k)),
        ("STREAM_K", int(stream_k)),
        *tile_constants(tile),
    )


def tile_constants(tile: SimtTile) -> Constants:
    return (
        ("TILE_M", tile.m),
        ("TILE_N", tile.n),
        ("TILE_K", tile.k),
        ("THREAD_M", tile.thread_m),
        ("THREAD_N", tile.thread_n),
        ("STAGES", tile.stages),
        ("COPY_ROW", tile.copy_row),
        ("PROMOTE", tile.promote),
        ("BLOCKS_PER_SM", tile.blocks),
    )


def narrow_constants(form: NarrowForm, side: int, load: int, shared: int) -> Constants:
    """The constants of narrow.cu after the epilogue's. `shared`: whether blocks share K, and how (MM32_SPLIT_K)."""
    return (
        ("SIDE", side),
        ("LOAD", load),
        *form_constants(form),
        ("SPLIT_K", shared),
    )


def form_constants(form: NarrowForm) -> Constants:
    return (
        ("WIDTH", form.width),
        ("ROWS", form.rows),
        ("DEPTH", form.depth),
        ("BLOCKS_PER_SM", form.blocks),
        ("LANES", form.lanes),
    )
