"""The planners of the kernels that compute by fp32 multiply-adds: naive, dot, tiled, and simt (simt.cu, and narrow.cu for M or N
up to 16).

A planner returns the plan, without a reason, and its estimate of the time in seconds. The rates were measured on an H200
(docs/kernels.md); they order the kernels, they do not predict a run to the per cent.
"""

from __future__ import annotations

from dataclasses import dataclass

from mm32.gemm import Gemm, Matrix
from mm32.plan import data
from mm32.plan.data import NO_EPILOGUE, Constants, Device, Launch, Plan, Workspace, epilogue


def naive(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    along_m = gemm.b.col != 1 and gemm.a.row == 1
    constants = (*epilogue(gemm), ("ALONG_M", int(along_m)))
    made = Plan(gemm, device, "naive", (Launch("fma/naive.cu", "mm32_naive", constants, 128, 0, (128,)),))
    coalesced = (gemm.b.col in (0, 1)) if not along_m else True
    busy = min(1.0, gemm.batches * gemm.m * gemm.n / (device.sms * 1024))
    rate = (4.0e12 if coalesced else 0.7e12) * busy * device.sms / 132
    stores = gemm.batches * gemm.m * gemm.n * 4.0 / 0.7e12
    return made, gemm.flops / max(rate, 1.0) + stores + LAUNCH


def dot(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    made = Plan(gemm, device, "dot", (Launch("fma/dot.cu", "mm32_dot", epilogue(gemm), 256, 0, (1,)),))
    elements = max(1, gemm.batches * gemm.m * gemm.n)  # an empty result is planned too, not launched
    # A block pays its reduction and start, and its reads: a strided one costs a 32-byte sector for each 4-byte element.
    sectors = (1 if gemm.a.col == 1 else 8) + (1 if gemm.b.row == 1 else 8)
    waves = -(-elements // (device.sms * 8))
    reads = elements * gemm.k * 4.0 * sectors / (5.0e12 * min(1.0, elements / (device.sms * 4)) * device.sms / 132)
    return made, max(waves * 1.5e-6, reads) + 3e-6 + LAUNCH


def tiled(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    constants = (*epilogue(gemm), ("A_ALONG_K", int(gemm.a.col == 1)), ("B_ALONG_K", int(gemm.b.row == 1)))
    made = Plan(gemm, device, "tiled", (Launch("fma/tiled.cu", "mm32_tiled", constants, 1024, 0, (32, 32)),))
    tiles = gemm.batches * -(-gemm.m // 32) * -(-gemm.n // 32)
    waves = -(-tiles // (device.sms * 2))
    return made, waves * (gemm.k * TILED_STEP + 5e-6) + LAUNCH


LAUNCH = 3e-6
TILED_STEP = 2 * 32 * 32 * 2 / (7.0e12 / 132)  # seconds for a step of K of the two tiles that a multiprocessor holds


@dataclass(frozen=True)
class SimtTile:
    """A block tile of the simt kernel; `rates` are the shares of the card's FMA peak that it sustains with 1, 2, ... blocks on a
    multiprocessor. `bring`: when it brings the next tiles in (simt.cuh). `aligned`: taken only where both operands come 16 bytes
    at a time."""

    m: int
    n: int
    k: int
    thread_m: int
    thread_n: int
    stages: int
    rates: tuple[float, ...]
    promote: int = 0  # tiles of K between promotions of the sums; 0 for none
    bring: int = 5
    aligned: bool = False

    @property
    def blocks(self) -> int:
        """Resident on a multiprocessor."""
        return len(self.rates)

    @property
    def threads(self) -> int:
        return 32 * (self.m // (8 * self.thread_m)) * (self.n // (4 * self.thread_n))

    def shared(self, loads: tuple[int, int]) -> int:
        """Bytes of a block, by how its operands come in (`_loads`): the ring, and a queue for each that is turned."""
        ring = 4 * self.stages * self.k * (self.m + self.n + 8)
        queued = self.m * (loads[0] == 2) + self.n * (loads[1] == 2)
        return ring + 4 * (self.stages - 1) * self.k * queued

    def resident(self, loads: tuple[int, int], device: Device) -> int:
        """Blocks that a multiprocessor holds: fewer than `blocks` where it has less shared memory. Each block takes 1 KB more
        than it asks for, and so much more than a block may have, a multiprocessor has."""
        return min(self.blocks, (device.shared + 1024) // (self.shared(loads) + 1024))


SIMT_TILES = (
    SimtTile(256, 128, 16, 16, 8, 3, (0.81,), bring=0, aligned=True),
    SimtTile(128, 64, 16, 8, 8, 3, (0.71, 0.775, 0.79)),
    SimtTile(64, 64, 16, 8, 8, 3, (0.37, 0.69, 0.71, 0.72, 0.73)),
)
# Sums promoted every 128 of K: two sets of registers. For the careful path, whose error must stand beside torch's, which splits
# K; and for K beyond LONG_K, where a plain sum's error would pass that of any fp32 matmul in use.
ACCURATE_TILE = SimtTile(128, 64, 16, 8, 8, 3, (0.50, 0.66), promote=8)
LONG_K = 8192
UNALIGNED = 1.1  # what copies of 4 bytes cost
SIMT_STREAM = 2.4e12  # bytes a second that it reaches where memory bounds it
FMA_PEAK = 66.9e12 / 132  # FLOP/s of a multiprocessor at 1.98 GHz


def traffic_of(gemm: Gemm) -> float:
    """Bytes that must move: operands once, the result once."""
    return 4.0 * gemm.batches * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)


def _loads(gemm: Gemm) -> tuple[int, int]:
    """How the simt kernel brings A and B in (see simt.cuh). What it loads 16 bytes at a time has no last 1 to 3 elements."""

    def mode(matrix: Matrix, along_rows: str, along_k: str, rows: int) -> int:
        if matrix.vectorizable(along_rows) and rows % 4 == 0:
            return 0
        if matrix.vectorizable(along_k) and gemm.k % 4 == 0:
            return 2
        return 3 if getattr(matrix, along_k) == 1 else 1

    return mode(gemm.a, "row", "col", gemm.m), mode(gemm.b, "col", "row", gemm.n)


SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # parts of K, each a block's
MOST_PARTIALS = 2**28  # partial sums: 1 GiB
STREAM = 0  # in the place of their number: only the tiles beyond whole waves are shared
FIXUP = 2.5e-6  # seconds: the launch of mm32_fixup
REDUCE, REDUCE_PART = 2.5e-6, 0.04e-6  # seconds: the launch of mm32_reduce, and what each part adds to it


def _sums(floats: int, splits: int) -> Workspace:
    """A workspace that holds sums, and nothing else."""
    none = (0, 0)
    return Workspace(4 * floats, none, none, none, 0, 0, (1, 1), splits, none)


def partial_sums(gemm: Gemm, splits: int) -> Workspace:
    """The workspace of a kernel whose blocks share K: `splits` partial sums of each output, for `reduction`."""
    return _sums(splits * gemm.batches * gemm.m * gemm.n, splits)


def reduction(gemm: Gemm, device: Device) -> Launch:
    """The launch that adds up partial sums, with the epilogue: its blocks come as those before it leave, on cards that can."""
    early = device.capability >= (9, 0)
    blocks = min(-(-gemm.batches * gemm.m * gemm.n // 256), device.sms * 8)
    return Launch(
        "common/reduce.cu", "mm32_reduce", epilogue(gemm), 256, 0, blocks=blocks, argument="split", early=early
    )


def _adding_up(splits: int, results: int, stream: float) -> float:
    """Estimated seconds of that, and of storing the partial sums, at `stream` bytes a second."""
    return REDUCE + REDUCE_PART * splits + 8.0 * splits * results / stream if splits > 1 else 0.0


def _shared_out(gemm: Gemm, device: Device, launch: Launch, splits: int) -> Plan:
    """The plan of simt in which the blocks of `launch` share K."""
    return Plan(gemm, device, "simt", (launch, reduction(gemm, device)), workspace=partial_sums(gemm, splits))


@dataclass(frozen=True)
class NarrowForm:
    """A form of narrow.cu, for a wide operand that is loaded along K or along its rows. Of 16-byte loads a thread asks for
    `rows` * `depth` (along rows: `depth`) at once; `blocks` fit on a multiprocessor."""

    width: int
    along_k: bool
    rows: int
    depth: int
    blocks: int

    @property
    def tile(self) -> int:
        """Rows of a block."""
        return (8 if self.along_k else 32) * self.rows

    @property
    def piece(self) -> int:
        """Of K: parts are whole pieces."""
        return max(256, 128 * self.depth) if self.along_k else 64


# By width. A multiprocessor's share of the memory, 30 bytes a ns, and a latency of 1 us ask for some 30 KB under way on it: 16 KB
# a block with 4 loads a thread, 32 with 8. Rows for each load of the narrow operand are as many as registers allow.
NARROW_FORMS = (
    NarrowForm(1, True, 1, 8, 2),
    NarrowForm(2, True, 2, 2, 2),
    NarrowForm(4, True, 4, 1, 2),
    NarrowForm(8, True, 4, 1, 2),
    NarrowForm(16, True, 8, 1, 1),
    NarrowForm(1, False, 4, 4, 2),
    NarrowForm(2, False, 4, 4, 2),
    NarrowForm(4, False, 4, 4, 2),
    NarrowForm(8, False, 4, 8, 1),
    NarrowForm(16, False, 4, 8, 1),
)
NARROW = 16  # the largest width
NARROW_STREAM = 4.2e12  # bytes a second from memory
NARROW_L2 = 5.0e12  # from L2, from which the narrow operand comes once for each tile: a guess
NARROW_RAMP, NARROW_BUSY = 6e-6, 50e6  # seconds until memory is busy; bytes that make it so
NARROW_AROUND = 1e-6  # seconds: a block's begin and end


def narrow(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    """The form of simt for M or N up to NARROW, and something to multiply. The wide operand is the one with more rows, if both
    may be."""
    side = 0 if gemm.n <= gemm.m else 1
    rows, width = (gemm.m, gemm.n) if side == 0 else (gemm.n, gemm.m)
    wide_row, wide_k = (gemm.a.row, gemm.a.col) if side == 0 else (gemm.b.col, gemm.b.row)
    load = _loads(gemm)[side]
    form = next(f for f in NARROW_FORMS if f.width >= width and f.along_k == (load >= 2))
    tiles = gemm.batches * -(-rows // form.tile)
    pieces = -(-gemm.k // form.piece)
    resident = device.sms * form.blocks
    results = gemm.batches * gemm.m * gemm.n
    # A sector of 32 bytes for each element.
    scattered = 8 if load == 1 and wide_row > 1 and rows > 1 and wide_k != 0 else 1

    def estimate(splits: int) -> float:
        waves = -(-tiles * splits // resident)
        alone = form.blocks == 1  # a block with a multiprocessor to itself hides less
        slower = 1.0 if not alone else 1.8 if form.width == 16 and not form.along_k else 1.2
        stream = traffic_of(gemm) * scattered / NARROW_STREAM * slower
        from_l2 = (traffic_of(gemm) + 4.0 * tiles * width * gemm.k) / NARROW_L2
        read = max(stream, from_l2) * waves * resident / (tiles * splits) * 132 / device.sms
        ramp = NARROW_RAMP * min(1.0, traffic_of(gemm) / NARROW_BUSY) * (2 if alone else 1)
        return read + ramp + waves * NARROW_AROUND + _adding_up(splits, results, NARROW_STREAM) + 2e-6 + LAUNCH

    splits = min((s for s in (*SPLITS, 256) if s == 1 or (s <= pieces and s * results <= MOST_PARTIALS)), key=estimate)
    split = splits > 1
    constants = (*(NO_EPILOGUE if split else epilogue(gemm)), *narrow_form(form, side, load, int(split)))
    if split:
        blocks = min(tiles * splits, data.MAX_GRID)
        launch = Launch("fma/narrow.cu", "mm32_narrow", constants, 256, 0, blocks=blocks, argument="split")
        return _shared_out(gemm, device, launch, splits), estimate(splits)
    unit = (form.tile, form.width) if side == 0 else (form.width, form.tile)
    launch = Launch("fma/narrow.cu", "mm32_narrow", constants, 256, 0, unit)
    return Plan(gemm, device, "simt", (launch,)), estimate(1)


def narrow_form(form: NarrowForm, side: int, load: int, split: int) -> Constants:
    return (
        ("SIDE", side),
        ("LOAD", load),
        ("WIDTH", form.width),
        ("ROWS", form.rows),
        ("DEPTH", form.depth),
        ("BLOCKS_PER_SM", form.blocks),
        ("SPLIT_K", split),
    )


def simt(gemm: Gemm, device: Device, accurate: bool = False, workspace: bool = True) -> tuple[Plan, float]:
    """By tiles, with K shared among blocks where they are few, and the tiles of the last wave where they are many; or by
    narrow.cu, where that is estimated to be faster. Not so for `accurate`: of its launch are tiles made anew. Without
    `workspace` nothing is shared."""
    loads, results = _loads(gemm), gemm.batches * gemm.m * gemm.n
    unaligned = any(load % 2 for load in loads)

    def count(tile: SimtTile, splits: int) -> int:
        return splits * gemm.batches * -(-gemm.m // tile.m) * -(-gemm.n // tile.n)

    def estimate(tile: SimtTile, splits: int) -> float:
        each = -(-count(tile, splits) // device.sms)
        step = 2.0 * tile.m * tile.n / (FMA_PEAK * tile.rates[min(max(each, 1), tile.blocks) - 1])
        if unaligned:
            step *= UNALIGNED
        stream = traffic_of(gemm) / SIMT_STREAM
        deep = max(-(-gemm.k // (tile.k * splits)), 1) * tile.k
        around = 2e-6 * each if tile.blocks == 1 else 0.0  # a tile's begin and end, with no other block beside it
        busy = max(each * deep * step + around + 0.45 * stream, stream)  # not all of the memory's time is hidden
        return busy + _adding_up(splits, results, SIMT_STREAM) + 4e-6 + LAUNCH

    def stream_estimate(tile: SimtTile) -> float:
        """As if each multiprocessor had the same work, to the step."""
        each = tile.resident(loads, device)
        tiles, resident = count(tile, 1), device.sms * each
        step = 2.0 * tile.m * tile.n / (FMA_PEAK * tile.rates[each - 1]) * (UNALIGNED if unaligned else 1.0)
        stream = traffic_of(gemm) / SIMT_STREAM
        deep = -(-gemm.k // tile.k) * tile.k
        around = 2e-6 * (tiles / resident + 2) if tile.blocks == 1 else 0.0
        pieces = 8.0 * (resident + tiles % resident) * tile.m * tile.n / SIMT_STREAM
        busy = max(tiles / device.sms * deep * step + around + 0.45 * stream, stream)
        return busy + pieces + FIXUP + 4e-6 + LAUNCH

    share = workspace and not accurate and not gemm.empty
    options = [
        (estimate(tile, splits), tile, splits)
        for splits in (SPLITS if share else (1,))
        for tile in ((ACCURATE_TILE,) if accurate or gemm.k > LONG_K * splits else SIMT_TILES)
        if tile.shared(loads) <= device.shared
        and not (tile.aligned and unaligned)
        and (splits == 1 or (splits * tile.k <= gemm.k and splits * results <= MOST_PARTIALS))
    ]
    for tile in [tile for _, tile, splits in options if share and gemm.k > 0 and splits == 1]:
        whole, rest = divmod(count(tile, 1), device.sms * tile.resident(loads, device))
        if whole and rest:
            options.append((stream_estimate(tile), tile, STREAM))
    seconds, tile, splits = min(options, key=lambda option: option[0])
    if share and gemm.k > 0 and min(gemm.m, gemm.n) <= NARROW:
        made = narrow(gemm, device)
        if made[1] < seconds:
            return made
    shared = tile.shared(loads)
    if splits == STREAM:
        return _streamed(gemm, device, tile, count(tile, 1)), seconds
    constants = _simt_constants(gemm, tile, int(splits > 1))
    if splits == 1:
        launch = Launch("fma/simt.cu", "mm32_simt", constants, tile.threads, shared, (tile.m, tile.n))
        return Plan(gemm, device, "simt", (launch,)), seconds
    blocks = min(count(tile, splits), data.MAX_GRID)
    launch = Launch("fma/simt.cu", "mm32_simt", constants, tile.threads, shared, blocks=blocks, argument="split")
    return _shared_out(gemm, device, launch, splits), seconds


def _streamed(gemm: Gemm, device: Device, tile: SimtTile, tiles: int) -> Plan:
    """Stream-K: all blocks share the tiles beyond whole waves, and mm32_fixup adds up their pieces (stream.cuh)."""
    loads = _loads(gemm)
    blocks = device.sms * tile.resident(loads, device)
    rest = tiles % blocks
    constants, shared = _simt_constants(gemm, tile, 2), tile.shared(loads)
    launch = Launch("fma/simt.cu", "mm32_simt", constants, tile.threads, shared, blocks=blocks, argument="split")
    slices = rest * tile.m * tile.n // (4 * tile.threads)
    early = device.capability >= (9, 0)
    fixup = Launch(
        "fma/fixup.cu", "mm32_fixup", constants, tile.threads, 0, blocks=slices, argument="split", early=early
    )
    return Plan(gemm, device, "simt", (launch, fixup), workspace=_sums((blocks + rest) * tile.m * tile.n, blocks))


def _simt_constants(gemm: Gemm, tile: SimtTile, split: int = 0) -> Constants:
    """`split`: 0, 1 where K is, or 2 for stream-K (simt.cuh)."""
    c_vector = gemm.n % 4 == 0 and (split == 1 or gemm.out.vectorizable("col"))
    return (*(NO_EPILOGUE if split == 1 else epilogue(gemm)), *simt_form(tile, *_loads(gemm), int(c_vector), split))


def simt_form(tile: SimtTile, a_load: int, b_load: int, c_vector: int, split: int = 0) -> Constants:
    return (
        ("A_LOAD", a_load),
        ("B_LOAD", b_load),
        ("C_VECTOR", c_vector),
        ("SPLIT_K", int(split == 1)),
        ("STREAM_K", int(split == 2)),
        ("TILE_M", tile.m),
        ("TILE_N", tile.n),
        ("TILE_K", tile.k),
        ("THREAD_M", tile.thread_m),
        ("THREAD_N", tile.thread_n),
        ("STAGES", tile.stages),
        ("COPY_ROW", tile.bring),
        ("PROMOTE", tile.promote),
        ("BLOCKS_PER_SM", tile.blocks),
    )
