"""What is done: `plan(gemm, device)` chooses a kernel and says why. The only place that chooses.

A `Plan` is data: kernel source, constants, launch. The launcher runs it, `Plan.explain()` prints it, `mm32.export` writes it
out as C++. Nothing here calls CUDA or torch, so a plan can be made for a card that is not present.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from mm32.gemm import ACTIVATIONS, Gemm, Matrix

KERNELS = ("naive", "dot", "tiled", "simt", "mma", "tensorcore")
SPLIT_KERNELS = ("mma", "tensorcore")  # operands split for the tensor cores
MAX_GRID = 2**31 - 1


@dataclass(frozen=True)
class Device:
    """What a planner needs to know of a card. `shared` is the most shared memory a block may take, in bytes."""

    name: str
    capability: tuple[int, int]
    sms: int
    shared: int

    @property
    def arch(self) -> str:
        """The NVRTC target: architecture-specific ("a") from sm_90 on."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


H200 = Device("NVIDIA H200", (9, 0), 132, 232448)


Constants = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `source` compiled with the MM32_… definitions of `constants`, and how many blocks of it.

    Kernels take further work a grid apart, so any grid is right. `blocks` says how many to start; where it is None they
    follow from `unit`, what a block computes: (e,) consecutive output elements or a (rows, columns) tile. `argument` is what
    the kernel takes, a "problem" (problem.cuh) or a "split" (split.cuh). `early`: it may start while the launch before it
    runs (programmatic dependent launch). `careful`: it does nothing but where the inputs do not suit the split.
    """

    source: str
    entry: str
    constants: Constants
    block: int
    shared: int
    unit: tuple[int, ...] = ()
    blocks: int | None = None
    argument: str = "problem"
    early: bool = False
    careful: bool = False

    def grid(self, gemm: Gemm) -> int:
        if self.blocks is not None:
            return self.blocks
        if len(self.unit) == 1:
            units = -(-gemm.batches * gemm.m * gemm.n // self.unit[0])
        else:
            units = gemm.batches * -(-gemm.m // self.unit[0]) * -(-gemm.n // self.unit[1])
        return min(units, MAX_GRID)


@dataclass(frozen=True)
class Workspace:
    """Device memory beyond the operands, in bytes, and what struct Split (split.cuh) says of it: offsets from its start of
    A's and B's panels, stats and ready counters, of the verdict and of the partial sums; how many matrices of each operand
    are packed; how many blocks share K; and the rows to pack first. An operand that was packed `before` is in memory of its
    own: its offsets are from the start of that."""

    bytes: int
    panels: tuple[int, int]
    stats: tuple[int, int]
    ready: tuple[int, int]
    verdict: int
    partial: int
    matrices: tuple[int, int]
    splits: int
    first: tuple[int, int]
    before: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class Plan:
    """How one `Gemm` runs: launches, in their order, and the workspace they share. `estimates` are the planner's own
    predictions in seconds, not measurements."""

    gemm: Gemm
    device: Device
    kernel: str
    launches: tuple[Launch, ...]
    reason: str = ""
    workspace: Workspace | None = None
    estimates: tuple[tuple[str, float], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def explain(self) -> str:
        """The plan as a page: what was asked, what was chosen and why, what will be launched."""
        g = self.gemm
        epilogue = (
            " + ".join((["bias"] if g.bias is not None else []) + ([g.activation] if g.activation else [])) or "none"
        )
        batch = f", batch {'x'.join(map(str, g.batch))}" if g.batch else ""
        lines = [
            f"gemm       M={g.m} N={g.n} K={g.k}{batch}, layout {g.layout}, epilogue {epilogue}, precision {g.precision}",
            f"device     {self.device.name} ({self.device.arch}, {self.device.sms} multiprocessors)",
            f"kernel     {self.kernel}: {self.reason}",
        ]
        for launch in self.launches:
            how = ", while the one before it runs" if launch.early else ""
            how += ", only if the inputs do not suit the split (careful path)" if launch.careful else ""
            lines.append(
                f"launch     {launch.entry} ({launch.source}): {launch.grid(g)} blocks of {launch.block} threads, "
                f"{launch.shared} bytes of dynamic shared memory{how}"
            )
            lines.append(f"           {', '.join(f'{k}={v}' for k, v in launch.constants)}")
        lines.append(f"workspace  {self.workspace.bytes if self.workspace else 0} bytes")
        if not self.launches:
            lines.append("           torch's own product, fp32 multiply-adds of cuBLAS, then bias and activation")
        if self.estimates:
            lines.append("estimates  " + ", ".join(f"{name} {_time(t)}" for name, t in self.estimates))
        lines += [f"not taken  {name}: {why}" for name, why in self.refused]
        return "\n".join(lines)


class Unplannable(ValueError):
    """No kernel, or not the one that was asked for, can do this; the message says why."""


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def _epilogue(gemm: Gemm) -> Constants:
    activation = 0 if gemm.activation is None else 1 + ACTIVATIONS.index(gemm.activation)
    return (("BIAS", int(gemm.bias is not None)), ("ACTIVATION", activation))


# ---------------------------------------------------------------------------------------------------------------------
# The kernels: each planner returns the plan without a reason, and its estimate of the time in seconds.
# The rates were measured on an H200 (docs/kernels.md); they order the kernels, they do not predict a run to the per cent.


def _naive(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    along_m = gemm.b.col != 1 and gemm.a.row == 1
    constants = (*_epilogue(gemm), ("ALONG_M", int(along_m)))
    made = Plan(gemm, device, "naive", (Launch("naive.cu", "mm32_naive", constants, 128, 0, (128,)),))
    coalesced = (gemm.b.col in (0, 1)) if not along_m else True
    busy = min(1.0, gemm.batches * gemm.m * gemm.n / (device.sms * 1024))
    rate = (4.0e12 if coalesced else 0.7e12) * busy * device.sms / 132
    stores = gemm.batches * gemm.m * gemm.n * 4.0 / 0.7e12
    return made, gemm.flops / max(rate, 1.0) + stores + LAUNCH


def _dot(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    made = Plan(gemm, device, "dot", (Launch("dot.cu", "mm32_dot", _epilogue(gemm), 256, 0, (1,)),))
    elements = max(1, gemm.batches * gemm.m * gemm.n)  # an empty result is planned too, not launched
    # A block pays its reduction and start, and its reads: a strided one costs a 32-byte sector for each 4-byte element.
    sectors = (1 if gemm.a.col == 1 else 8) + (1 if gemm.b.row == 1 else 8)
    waves = -(-elements // (device.sms * 8))
    reads = elements * gemm.k * 4.0 * sectors / (5.0e12 * min(1.0, elements / (device.sms * 4)) * device.sms / 132)
    return made, max(waves * 1.5e-6, reads) + LAUNCH


def _tiled(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    constants = (*_epilogue(gemm), ("A_ALONG_K", int(gemm.a.col == 1)), ("B_ALONG_K", int(gemm.b.row == 1)))
    made = Plan(gemm, device, "tiled", (Launch("tiled.cu", "mm32_tiled", constants, 1024, 0, (32, 32)),))
    tiles = gemm.batches * -(-gemm.m // 32) * -(-gemm.n // 32)
    waves = -(-tiles // (device.sms * 2))
    return made, waves * (gemm.k * TILED_STEP + 5e-6) + LAUNCH


LAUNCH = 3e-6
TILED_STEP = 2 * 32 * 32 * 2 / (7.0e12 / 132)  # seconds for a step of K of the two tiles that a multiprocessor holds


@dataclass(frozen=True)
class SimtTile:
    """A block tile of the simt kernel; `rates` are the shares of the card's FMA peak that it sustains with 1, 2, ... blocks on a
    multiprocessor."""

    m: int
    n: int
    k: int
    thread_m: int
    thread_n: int
    stages: int
    rates: tuple[float, ...]
    promote: int = 0  # tiles of K between promotions of the sums; 0 for none

    @property
    def blocks(self) -> int:
        """Resident on a multiprocessor."""
        return len(self.rates)

    @property
    def threads(self) -> int:
        return 32 * (self.m // (8 * self.thread_m)) * (self.n // (4 * self.thread_n))

    @property
    def shared(self) -> int:
        return 4 * self.stages * self.k * (self.m + self.n + 8)


SIMT_TILES = (
    SimtTile(128, 128, 16, 8, 16, 4, (0.50, 0.70)),
    SimtTile(64, 64, 16, 4, 8, 4, (0.30, 0.52, 0.57, 0.60)),
)
# Sums promoted every 128 of K: two sets of registers, so a smaller tile. For the careful path, whose error must stand beside
# torch's, which splits K; and for K beyond LONG_K, where a plain sum's error would pass that of any fp32 matmul in use.
ACCURATE_TILES = (
    SimtTile(128, 128, 16, 8, 8, 4, (0.58,), 8),
    SimtTile(64, 64, 16, 4, 8, 4, (0.30, 0.45), 8),
)
LONG_K = 8192
SIMT_STREAM = 2.4e12  # bytes a second that it reaches where memory bounds it
FMA_PEAK = 66.9e12 / 132  # FLOP/s of a multiprocessor at 1.98 GHz


def _traffic(gemm: Gemm) -> float:
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


def _simt(gemm: Gemm, device: Device, accurate: bool = False) -> tuple[Plan, float]:
    def estimate(tile: SimtTile) -> float:
        each = -(-gemm.batches * -(-gemm.m // tile.m) * -(-gemm.n // tile.n) // device.sms)
        step = 2.0 * tile.m * tile.n / (FMA_PEAK * tile.rates[min(max(each, 1), tile.blocks) - 1])
        stream = _traffic(gemm) / SIMT_STREAM
        return max(each * max(gemm.k, tile.k) * step + 0.45 * stream, stream) + 5e-6 + LAUNCH

    tiles = ACCURATE_TILES if accurate or gemm.k > LONG_K else SIMT_TILES
    fitting = [t for t in tiles if t.shared <= device.shared]
    tile = min(fitting, key=estimate)
    launch = Launch("simt.cu", "mm32_simt", _simt_constants(gemm, tile), tile.threads, tile.shared, (tile.m, tile.n))
    return Plan(gemm, device, "simt", (launch,)), estimate(tile)


def _simt_constants(gemm: Gemm, tile: SimtTile) -> Constants:
    c_vector = gemm.out.vectorizable("col") and gemm.n % 4 == 0
    return (*_epilogue(gemm), *_simt_form(tile, *_loads(gemm), int(c_vector)))


def _simt_form(tile: SimtTile, a_load: int, b_load: int, c_vector: int) -> Constants:
    return (
        ("A_LOAD", a_load),
        ("B_LOAD", b_load),
        ("C_VECTOR", c_vector),
        ("TILE_M", tile.m),
        ("TILE_N", tile.n),
        ("TILE_K", tile.k),
        ("THREAD_M", tile.thread_m),
        ("THREAD_N", tile.thread_n),
        ("STAGES", tile.stages),
        ("PROMOTE", tile.promote),
        ("BLOCKS", tile.blocks),
    )


# The tensor-core kernels: scale and pack the operands, multiply their panels, add up parts of K, and the careful path.

BLOCK_K, CHUNK, TILE_M = 64, 8, 128  # as in split.cuh and tiles.cuh
QUEUE = 65536  # bytes, as in direct.cuh
GROUP = 8
SHORT_K = 256  # below it tensorcore promotes every 16 of K, and mma's error may pass that of an fp32 sum
SHORTEST_K = 32  # below it tensorcore's may
MAX_ROWS = 2**24  # a plane of panels has 128 bytes a row, counted in 32 bits


@dataclass(frozen=True)
class TensorTile:
    """A tile of 128 x n of tensorcore.cu; `step` is the seconds that a multiprocessor takes for 64 of K of it, `around` for
    beginning and storing it. `direct`: the multiply splits its operands itself; nothing is packed. `promote`: sums are promoted
    every so many times 16 of K; 1 is for K below SHORT_K."""

    n: int
    products: int
    stages: int
    step: float
    around: float
    direct: bool = False
    promote: int = 4

    @property
    def shared(self) -> int:
        planes = 2 if self.products == 3 else 1
        return self.stages * planes * 128 * (TILE_M + self.n) + (QUEUE if self.direct else 0) + 1024

    @property
    def threads(self) -> int:
        return 512 if self.direct else 384

    @property
    def beside(self) -> bool:
        """Whether a block of mm32_pack fits on a multiprocessor beside one with this tile."""
        return self.n <= 128


@dataclass(frozen=True)
class MmaTile:
    """A tile of 128 x n of mma.cu; `step` and `around` as in TensorTile."""

    n: int
    products: int
    step: float
    around: float = 8e-6
    stages: int = 3  # 98.5 KB at most, with what is not dynamic: the 99 KB of sm_86, sm_89 and sm_120 hold it

    direct: ClassVar[bool] = False
    promote: ClassVar[int] = 2
    threads: ClassVar[int] = 256

    @property
    def shared(self) -> int:
        return self.stages * 128 * (TILE_M + self.n)


def _tensor_form(tile: TensorTile) -> Constants:
    return (("TILE_N", tile.n), ("STAGES", tile.stages), ("DIRECT", int(tile.direct)), ("PROMOTE", tile.promote))


TENSOR_TILES = (
    TensorTile(128, 3, 3, 0.90e-6, 11e-6),
    TensorTile(64, 3, 4, 0.62e-6, 6e-6),
    TensorTile(128, 1, 6, 0.42e-6, 6e-6),
    TensorTile(64, 1, 6, 0.28e-6, 4e-6),
    TensorTile(128, 3, 2, 1.90e-6, 7e-6, True),
    TensorTile(64, 3, 3, 1.40e-6, 5e-6, True),
    TensorTile(128, 1, 4, 1.10e-6, 6e-6, True),
    TensorTile(64, 1, 5, 0.85e-6, 5e-6, True),
    TensorTile(128, 3, 3, 1.10e-6, 3e-6, False, 1),
)
# A guess, not measured: 300 TFLOP/s of fp16 products on 132 multiprocessors; a TILE_N of 64 as much less as in TENSOR_TILES.
MMA_TILES = (
    MmaTile(128, 3, 2.8e-6),
    MmaTile(64, 3, 1.5e-6),
    MmaTile(128, 1, 0.95e-6),
    MmaTile(64, 1, 0.5e-6),
)
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
PACK_ALONE, PACK_BESIDE = 3.1e12, 2.0e12  # bytes a second, all blocks or one a multiprocessor
DIRECT_STREAM = 2.0e12  # bytes a second that direct tiles reach where memory bounds them
PACK_ONLY_BESIDE = 1.5e12  # where the multiply waits for it
UNIT = 6e-6  # seconds that a block of mm32_pack takes for a unit, at least
MEMORY = 3.5e12


def _pack_mode(matrix: Matrix, rows: str) -> int:
    """How mm32_pack loads an operand (pack.cu)."""
    along_k = "col" if rows == "row" else "row"
    if matrix.vectorizable(rows):
        return 0
    if matrix.vectorizable(along_k):
        return 2
    return 3 if (matrix.row if rows == "col" else matrix.col) == 1 else 1


BEFORE = 4  # the load of an operand that was packed beforehand


def _unit_rows(load: int) -> int:
    """Rows that mm32_pack packs at a time (UNIT_ROWS in split.cuh). Of an operand packed before, all counters are complete: the
    larger unit, of which fewer are waited for, holds with either."""
    return 16 if load in (2, 3) else 64


def _workspace(
    gemm: Gemm,
    products: int,
    splits: int,
    first: tuple[int, int],
    direct: bool = False,
    before: tuple[bool, bool] = (False, False),
) -> Workspace:
    planes, blocks = (2 if products == 3 else 1), -(-gemm.k // BLOCK_K)
    matrices = tuple(gemm.batches if any(matrix.batch) else 1 for matrix in (gemm.a, gemm.b))
    at = 0

    def take(count: int) -> int:
        nonlocal at
        start, at = at, at + -(-count // 256) * 256
        return start

    sides = tuple((x, 0 if b else rows) for x, rows, b in zip(matrices, (gemm.m, gemm.n), before, strict=True))
    panels = tuple(take(0 if direct else x * blocks * planes * -(-rows // 8) * 8 * 128) for x, rows in sides)
    stats = tuple(take(x * rows * 32) for x, rows in sides)
    ready = tuple(take(x * -(-rows // 128) * -(-blocks // CHUNK) * 4) for x, rows in sides)
    verdict = take(12 + 2 * 512 * 12)  # struct Verdict
    partial = take(4 * splits * gemm.batches * gemm.m * gemm.n if splits > 1 else 0)
    for side in (0, 1):
        if before[side]:  # where packing it alone has put things
            alone = _workspace(_alone(gemm, side), products, 1, (0, 0))
            panels, stats, ready = (
                (one[0], two[1]) if side == 0 else (two[0], one[1])
                for one, two in ((alone.panels, panels), (alone.stats, stats), (alone.ready, ready))
            )
    return Workspace(at, panels, stats, ready, verdict, partial, matrices, splits, first, before)  # type: ignore[arg-type]


def _alone(gemm: Gemm, side: int) -> Gemm:
    """The problem of packing one operand: the other has no rows."""
    m, n = (gemm.m, 0) if side == 0 else (0, gemm.n)
    return replace(gemm, m=m, n=n, batch=(), a=replace(gemm.a, batch=()), b=replace(gemm.b, batch=()))


def _units(gemm: Gemm, matrices: tuple[int, int], loads: tuple[int, int]) -> int:
    """How many units mm32_pack has to pack."""
    sides = zip(matrices, (gemm.m, gemm.n), loads, strict=True)
    chunks = -(-gemm.k // (BLOCK_K * CHUNK))
    return chunks * sum(x * -(-r // _unit_rows(load)) for x, r, load in sides if load != BEFORE)


def _pack_launches(
    gemm: Gemm, device: Device, products: int, matrices: tuple[int, int], loads: tuple[int, int], overlap: bool
) -> list[Launch]:
    """What makes the panels and stats of the operands that were not packed before."""
    constants = (("A_LOAD", loads[0]), ("B_LOAD", loads[1]), ("PRODUCTS", products))
    sides = zip(matrices, (gemm.m, gemm.n), loads, strict=True)
    groups = sum(x * -(-r // 32) for x, r, load in sides if load != BEFORE)
    units = _units(gemm, matrices, loads)
    packers = min(max(units, 1), device.sms if overlap else MAX_GRID)  # one at least: it judges
    early = device.capability >= (9, 0)  # before it, launches cannot overlap
    return [
        Launch("pack.cu", "mm32_scale", constants, 256, 0, blocks=min(max(groups, 1), MAX_GRID), argument="split"),
        Launch("pack.cu", "mm32_pack", constants, 256, 0, blocks=packers, argument="split", early=early),
    ]


def packed_bytes(gemm: Gemm, side: int) -> int:
    """The size of what `pack` makes of operand `side` of `gemm`."""
    return _workspace(_alone(gemm, side), _products(gemm), 1, (0, 0)).bytes


def _products(gemm: Gemm) -> int:
    return 1 if gemm.precision == "tf32" else 3


def _split_kernel(device: Device) -> str:
    """The one of SPLIT_KERNELS that is for `device`: the packed form is the same."""
    return "mma" if unsupported("tensorcore", device) else "tensorcore"


def pack(gemm: Gemm, device: Device, side: int) -> Plan:
    """The plan that packs operand `side` (0: A, 1: B) of `gemm`, in which it must be one matrix, for plans with `before`. Its
    workspace is what is kept.

    Raises `Unplannable` where no tensor-core kernel would be chosen for it, and why.
    """
    kernel = _split_kernel(device)
    why = unsupported(kernel, device) or unsuited(kernel, gemm) or _short(gemm, kernel)
    if (gemm.m, gemm.n)[side] == 0 or gemm.k == 0:
        why = "it has no element"
    if why is not None:
        raise Unplannable(why)
    products = _products(gemm)
    alone = _alone(gemm, side)
    loads = (BEFORE, _pack_mode(gemm.b, "col")) if side else (_pack_mode(gemm.a, "row"), BEFORE)
    launches = _pack_launches(alone, device, products, (1, 1), loads, overlap=False)
    space = _workspace(alone, products, 1, (alone.m, alone.n))
    return Plan(alone, device, kernel, tuple(launches), "packing an operand", space)


def _tensorcore(gemm: Gemm, device: Device, before: tuple[bool, bool] = (False, False)) -> tuple[Plan, float]:
    # direct.cuh has 32-bit offsets within a tile
    small = max(gemm.a.row, gemm.a.col, gemm.b.row, gemm.b.col) < 2**23
    tiles = [tile for tile in TENSOR_TILES if not tile.direct or (small and not any(before))]
    return _by_split(gemm, device, "tensorcore", tiles, before)


def _mma(gemm: Gemm, device: Device, before: tuple[bool, bool] = (False, False)) -> tuple[Plan, float]:
    # GeForce cards add up fp16 products in fp32 at half the rate (NVIDIA's whitepapers on GA102 and AD102).
    slower = 2.0 if "GeForce" in device.name else 1.0
    return _by_split(gemm, device, "mma", [replace(tile, step=slower * tile.step) for tile in MMA_TILES], before)


def _by_split(
    gemm: Gemm,
    device: Device,
    kernel: str,
    tiles: Sequence[TensorTile | MmaTile],
    before: tuple[bool, bool] = (False, False),
) -> tuple[Plan, float]:
    if gemm.k == 0 or gemm.empty:  # nothing to multiply: the epilogue of zeros
        return replace(_simt(gemm, device)[0], kernel=kernel), 2 * LAUNCH
    products = _products(gemm)
    chunks = -(-gemm.k // (BLOCK_K * CHUNK))
    rows = -(-gemm.m // TILE_M)
    elements = [(gemm.batches if any(x.batch) else 1) * r * gemm.k for x, r in ((gemm.a, gemm.m), (gemm.b, gemm.n))]
    traffic = 8.0 if products == 3 else 6.0
    matrices = tuple(gemm.batches if any(x.batch) else 1 for x in (gemm.a, gemm.b))
    scaled = matrices[0] * gemm.m + matrices[1] * gemm.n
    # Direct tiles read such an operand 4 bytes at a time.
    scattered = any(
        _pack_mode(x, along) % 2 == 1 or (r if _pack_mode(x, along) < 2 else gemm.k) % 4 != 0
        for x, along, r in ((gemm.a, "row", gemm.m), (gemm.b, "col", gemm.n))
    )
    units = _units(gemm, matrices, (_pack_mode(gemm.a, "row"), _pack_mode(gemm.b, "col")))  # type: ignore[arg-type]

    def suits(tile: TensorTile | MmaTile) -> bool:
        short = kernel == "tensorcore" and products == 3 and gemm.k < SHORT_K
        return tile.products == products and (tile.promote == 1) == short

    def estimate(tile: TensorTile | MmaTile, splits: int, packed: float) -> tuple[float, bool]:
        """Seconds, and whether to pack while multiplying, with `packed` bytes to move for that."""
        waves = -(-gemm.batches * rows * -(-gemm.n // tile.n) * splits // device.sms)
        blocks = min(-(-chunks // splits) * CHUNK, -(-gemm.k // BLOCK_K))
        step = tile.step
        if tile.direct and (gemm.batches > 1 or scattered):  # measured; not understood for batches
            step *= 2.5
        multiply = waves * (blocks * step + tile.around) * (1.25 if gemm.batches > 1 else 1.0)
        multiply += gemm.batches * gemm.m * gemm.n * 4 * splits / MEMORY / waves  # the last wave's stores stand alone
        reduce = 6e-6 + gemm.batches * gemm.m * gemm.n * 4 * (splits + 1) / MEMORY if splits > 1 else 0.0
        rest = 17e-6 + 0.5e-9 * scaled + reduce  # mm32_scale, mm32_careful
        if tile.direct:
            return max(multiply, _traffic(gemm) / DIRECT_STREAM) + rest + 7e-6, False
        waves_of_units = -(-units // (4 * device.sms)) if packed else 0
        in_turn = max(packed / PACK_ALONE, waves_of_units * UNIT) + multiply
        together = max(multiply + 0.4 * packed / PACK_BESIDE, packed / PACK_ONLY_BESIDE) + 15e-6
        # Packing beside it, blocks do not start together and share less of what is in L2: a long multiply loses more to that
        # (8192^3: 5.6 ms against 4.9) than it gains.
        worth = packed / PACK_ALONE > 0.1 * multiply
        overlap = isinstance(tile, TensorTile) and tile.beside and gemm.batches == 1 and worth and together < in_turn
        return (together if overlap else in_turn) + rest, overlap

    options = [
        (*estimate(tile, splits, traffic * sum(elements)), tile, splits)
        for tile in tiles
        if suits(tile)
        for splits in SPLITS
        if splits <= chunks
        and (not tile.direct or chunks <= 500 * splits)  # 16 bits for counts of 16 a K-block
        and (splits == 1 or splits * gemm.batches * gemm.m * gemm.n <= 2**28)
    ]
    # The tile and the splits are those of a call without packed operands: it has the same sums, and so the same bits.
    _, _, tile, splits = min(options, key=lambda o: o[0])
    left = traffic * sum(e for e, b in zip(elements, before, strict=True) if not b)
    seconds, overlap = estimate(tile, splits, left)
    columns = -(-gemm.n // tile.n)
    height = min(GROUP, rows)
    # The tiles that the blocks start with: `height` rows of tiles, and as many columns as there are blocks for.
    first = (min(gemm.m, height * TILE_M), min(gemm.n, -(-device.sms // height) * tile.n))
    space = _workspace(gemm, products, splits, first, tile.direct, before)
    modes = (
        BEFORE if before[0] else _pack_mode(gemm.a, "row"),
        BEFORE if before[1] else _pack_mode(gemm.b, "col"),
    )
    if tile.direct:  # its 16-byte loads need whole fours of the axis they lie along
        modes = (
            modes[0] | int((gemm.k if modes[0] >= 2 else gemm.m) % 4 != 0),
            modes[1] | int((gemm.k if modes[1] >= 2 else gemm.n) % 4 != 0),
        )
    loads = (("A_LOAD", modes[0]), ("B_LOAD", modes[1]))
    epilogue, form = _epilogue(gemm), (("PRODUCTS", products),)
    waited_for = (("A_UNIT", _unit_rows(modes[0])), ("B_UNIT", _unit_rows(modes[1])))
    multiply = (
        *(epilogue if splits == 1 else _NO_EPILOGUE),
        *form,
        *(loads if tile.direct else waited_for if kernel == "tensorcore" else ()),
        *(_tensor_form(tile) if isinstance(tile, TensorTile) else (("TILE_N", tile.n), ("STAGES", tile.stages))),
        ("SPLIT", int(splits > 1)),
        ("C_VECTOR", int(gemm.out.vectorizable("col") if splits == 1 else gemm.n % 4 == 0)),
    )
    work = gemm.batches * rows * columns * splits
    # All blocks of mm32_pack are on the card at once: the multiply's come as they leave, and nobody waits for the launch.
    # Where K is short, the judgement at its end takes longer than what little a tile would gain from its neighbours.
    at_once = _units(gemm, space.matrices, modes) <= 4 * device.sms or gemm.k <= 512
    launches = _pack_launches(gemm, device, products, space.matrices, modes, overlap)
    if tile.direct:
        del launches[1]
    if kernel == "tensorcore":
        launches.append(
            Launch(
                "tensorcore.cu",
                "mm32_tensorcore",
                multiply,
                tile.threads,
                tile.shared,
                blocks=min(device.sms, work),
                argument="split",
                early=overlap or tile.direct or at_once,
            )
        )
    else:
        blocks = min(MAX_GRID, work)
        launches.append(
            Launch("mma.cu", "mm32_mma", multiply, tile.threads, tile.shared, blocks=blocks, argument="split")
        )
    if splits > 1:
        blocks = min(-(-gemm.batches * gemm.m * gemm.n // 256), device.sms * 8)
        launches.append(Launch("reduce.cu", "mm32_reduce", (*epilogue, *form), 256, 0, blocks=blocks, argument="split"))
    fma = _simt(gemm, device, accurate=True)[0].launches[0]
    launches.append(
        Launch(
            "careful.cu",
            "mm32_careful",
            (*form, *fma.constants),
            fma.block,
            fma.shared,
            blocks=min(fma.grid(gemm), device.sms * 2),
            argument="split",
            early=device.capability >= (9, 0),
            careful=True,
        )
    )
    return Plan(gemm, device, kernel, tuple(launches), workspace=space), seconds


_NO_EPILOGUE: Constants = (("BIAS", 0), ("ACTIVATION", 0))

_PLANNERS: dict[str, Callable[[Gemm, Device], tuple[Plan, float]]] = {
    "naive": _naive,
    "dot": _dot,
    "tiled": _tiled,
    "simt": _simt,
    "mma": _mma,
    "tensorcore": _tensorcore,
}


def unsupported(kernel: str, device: Device) -> str | None:
    """Why `kernel` cannot run on `device`, or None if it can."""
    major, minor = device.capability
    if device.capability < (8, 0):
        return f"mm32's kernels are compiled for compute capability 8.0 and later; {device.name} has {major}.{minor}"
    if kernel == "tensorcore" and device.capability != (9, 0):
        return (
            f"it is made of Hopper's wgmma instructions, compute capability 9.0; {device.name} has {major}.{minor}: "
            "kernel 'mma' is the same scheme for it"
        )
    return None


def unsuited(kernel: str, gemm: Gemm) -> str | None:
    """Why `kernel` cannot compute `gemm`, or None if it can."""
    if kernel not in SPLIT_KERNELS:
        return None
    if gemm.precision == "ieee":
        return "precision 'ieee' promises fp32 multiply-adds only, and it splits operands for the tensor cores"
    tiles = gemm.batches * -(-gemm.m // TILE_M) * -(-gemm.n // 64) * SPLITS[-1]
    if max(gemm.m, gemm.n) > MAX_ROWS or gemm.k > 2**30 or tiles >= 2**31:
        return f"M and N may be {MAX_ROWS} at most, K 2^30, and tiles must be counted in 31 bits"
    chunks = -(-gemm.k // (BLOCK_K * CHUNK))
    if gemm.batches * (-(-gemm.m // 16) + -(-gemm.n // 16)) * chunks >= 2**31:
        return "the units of packing must be counted in 31 bits"
    return None


def _short(gemm: Gemm, kernel: str) -> str | None:
    """Why "auto" does not take one of SPLIT_KERNELS for a sum of so few products, or None."""
    shortest = SHORTEST_K if kernel == "tensorcore" else SHORT_K
    if gemm.precision == "fp32" and gemm.k < shortest:
        return f"below K={shortest} its error may pass an fp32 matmul's (docs/numerics.md)"
    return None


def plan(
    gemm: Gemm,
    device: Device,
    kernel: str = "auto",
    before: tuple[bool, bool] = (False, False),
    *,
    torch: bool = False,
) -> Plan:
    """The plan for `gemm` on `device`: the kernel that was named, or with "auto" the one that is estimated to be fastest; the
    tensor-core kernel if A or B was packed `before`, unless it does not suit the problem, which is then computed without.

    With `torch`, "auto" may choose torch's own product (cuBLAS), a plan of kernel "torch" without launches: for small sizes and
    shapes that no kernel here is good at.

    Raises ValueError for a kernel that does not exist, `Unplannable` for one that cannot run on the device or the problem.
    """
    check_kernel(kernel)
    names = KERNELS if kernel == "auto" else (kernel,)
    refused = {name: why for name in names if (why := unsupported(name, device) or unsuited(name, gemm)) is not None}
    if any(before) and kernel in ("auto", *SPLIT_KERNELS):
        name = _split_kernel(device) if kernel == "auto" else kernel
        if name not in refused:
            made = (_mma if name == "mma" else _tensorcore)(gemm, device, before)
            which = " and ".join(side for side, b in zip("AB", before, strict=True) if b)
            return replace(made[0], reason=f"{which} packed beforehand", estimates=((name, made[1]),))
    if kernel == "auto":
        for name in SPLIT_KERNELS:
            if (why := _short(gemm, name)) is not None:
                refused.setdefault(name, why)
        if unsupported("tensorcore", device) is None:
            refused.setdefault("mma", "tensorcore is the same scheme, by wgmma")
    if len(refused) == len(names):
        raise Unplannable(f"kernel {kernel!r} cannot run here: {next(iter(refused.values()))}")
    options = [_PLANNERS[name](gemm, device) for name in names if name not in refused]
    if torch and kernel == "auto" and gemm.precision != "tf32" and not gemm.empty and gemm.k > 0 and _for_blas(gemm):
        options.append((Plan(gemm, device, "torch", ()), _by_torch(gemm, device)))
    options.sort(key=lambda o: o[1])
    chosen = options[0][0]
    reason = "asked for by name" if kernel != "auto" else f"least estimated time of {len(options)} kernels"
    return replace(
        chosen,
        reason=reason,
        estimates=tuple((p.kernel, t) for p, t in options),
        refused=tuple(refused.items()) if device.capability >= (8, 0) else (),
    )


def _for_blas(gemm: Gemm) -> bool:
    """Whether cuBLAS takes the operands and the result as they lie; torch copies what it does not take."""

    def lies(matrix: Matrix, rows: int, cols: int) -> bool:
        along_cols = (matrix.col == 1 or cols == 1) and (matrix.row >= cols or rows == 1)
        return along_cols or ((matrix.row == 1 or rows == 1) and (matrix.col >= rows or cols == 1))

    sides = ((gemm.a, gemm.m, gemm.k), (gemm.b, gemm.k, gemm.n), (gemm.out, gemm.m, gemm.n))
    return len(gemm.batch) <= 1 and all(lies(*side) for side in sides)


def _by_torch(gemm: Gemm, device: Device) -> float:
    """Estimated seconds of torch's product, and of what mm32's kernels fuse: a pass over the result for a bias, another for an
    activation."""
    passes = (gemm.bias is not None) + (gemm.activation is not None)
    return torch_seconds(gemm, device) + passes * (LAUNCH + 8.0 * gemm.batches * gemm.m * gemm.n / MEMORY)


# torch's own product (cuBLAS), as far as a choice between it and mm32 needs: the largest of an SM's arithmetic and the card's
# memory, by tiles of 128 or 64 with K split where tiles are few. FLOP/s of the card: torch on an H200, fp32 and TF32.
TORCH_RATES = {"fp32": 50.0e12, "ieee": 50.0e12, "tf32": 360.0e12}
TORCH_LAUNCH = 5e-6


def torch_seconds(gemm: Gemm, device: Device) -> float:
    """Estimated seconds that torch.matmul takes for `gemm` at `gemm.precision` (with "fp32" and "ieee" torch runs fp32 FMAs)."""
    result = 4.0 * gemm.batches * gemm.m * gemm.n

    def estimate(tile: int, efficiency: float, splits: int) -> float:
        tiles = gemm.batches * -(-gemm.m // tile) * -(-gemm.n // tile) * splits
        rate = TORCH_RATES[gemm.precision] / 132 * efficiency
        multiply = -(-tiles // device.sms) * -(-gemm.k // splits) * 2.0 * tile * tile / rate
        add_up = 3e-6 + result * (splits + 1) / MEMORY if splits > 1 else 0.0
        # Where K is split, its fp32 kernels stay behind the memory; TF32's do not.
        stream = _traffic(gemm) / (1.6e12 if splits > 1 and gemm.precision != "tf32" else MEMORY)
        return max(multiply + 0.9 * result / MEMORY, stream) + add_up + TORCH_LAUNCH

    tiles = ((128, 1.0), (64, 0.85))
    fastest = min(
        estimate(tile, efficiency, splits)
        for tile, efficiency in tiles
        for splits in SPLITS
        if splits <= max(gemm.k, 1)
    )
    narrow = min(gemm.m, gemm.n)
    if narrow <= 16:  # cuBLAS has kernels for matrix-vector products and narrow matrices, which memory bounds
        stream = 3.5e12 if narrow == 1 else 2.8e12
        fastest = min(fastest, _traffic(gemm) / stream + TORCH_LAUNCH)
    return fastest


def check_kernel(kernel: str) -> None:
    if kernel != "auto" and kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: mm32 has 'auto', {', '.join(map(repr, KERNELS))}")


def variants() -> Iterator[tuple[str, str, Constants, int]]:
    """Every compiled form that plans differ in, as (kernel, source, constants, threads a block). Epilogues multiply the
    forms without touching the main loop: they are covered by the empty one and the heaviest on every form, and each
    activation once a kernel; of simt's, the heaviest on one form a tile. Its 16-byte stores stand with three of its four loads,
    the others with the fourth."""
    light = _NO_EPILOGUE
    heavy = (("BIAS", 1), ("ACTIVATION", 1 + ACTIVATIONS.index("gelu_tanh")))
    each = [(("BIAS", i % 2), ("ACTIVATION", 1 + i)) for i in range(len(ACTIVATIONS))]
    each.remove(heavy)

    def with_epilogues(
        kernel: str, source: str, forms: Sequence[Constants], threads: int, every: bool = True
    ) -> Iterator[tuple]:
        for number, form in enumerate(forms):
            for epilogue in [light, heavy] + (each if number == 0 and every else []):
                yield kernel, source, (*epilogue, *form), threads

    yield from with_epilogues("naive", "naive.cu", [(("ALONG_M", v),) for v in (0, 1)], 128)
    yield from with_epilogues("dot", "dot.cu", [()], 256)
    tiled = [(("A_ALONG_K", i), ("B_ALONG_K", j)) for i in (0, 1) for j in (0, 1)]
    yield from with_epilogues("tiled", "tiled.cu", tiled, 1024)
    for t in (*SIMT_TILES, *ACCURATE_TILES):
        first, *forms = [_simt_form(t, i, j, int(i != 1)) for i in range(4) for j in range(4)]
        yield from with_epilogues("simt", "simt.cu", [first], t.threads)
        for form in forms:
            yield "simt", "simt.cu", (*light, *form), t.threads
    # What both kernels for split operands launch is listed with the one that runs on every card.
    for t in ACCURATE_TILES:
        first, *forms = [
            (("PRODUCTS", 3), *light, *_simt_form(t, i, j, int(i != 1))) for i in range(4) for j in range(4)
        ]
        one_product = (("PRODUCTS", 1), *first[1:])
        heaviest = (first[0], *heavy, *first[3:])
        for form in (first, one_product, heaviest, *forms):
            yield "mma", "careful.cu", form, t.threads
    for products in (3, 1):
        for i in range(BEFORE + 1):
            for j in range(BEFORE + 1):
                yield "mma", "pack.cu", (("A_LOAD", i), ("B_LOAD", j), ("PRODUCTS", products)), 256
        yield from with_epilogues("mma", "reduce.cu", [(("PRODUCTS", products),)], 256)
    for tile in TENSOR_TILES:
        # The units are constants to compare with; how C is stored and whether K is split change the code.
        of_tile = _tensor_form(tile)
        loads: Constants = (("PRODUCTS", tile.products), ("A_UNIT", 64), ("B_UNIT", 16))
        stores: list[Constants] = [(("SPLIT", i), ("C_VECTOR", j)) for i in (0, 1) for j in (0, 1)]
        if tile.direct:
            # Warpgroups of their own load: each pair of loads stands with one of the four ways to store, each of these with four.
            loads, *others = [
                (("PRODUCTS", tile.products), ("A_LOAD", i), ("B_LOAD", j)) for i in range(4) for j in range(4)
            ]
            for number, other in enumerate(others, 4):
                form = (*light, *other, *of_tile, *stores[number % 4])
                yield "tensorcore", "tensorcore.cu", form, tile.threads
        forms = [(*loads, *of_tile, *store) for store in stores[:2]]
        every = tile == TENSOR_TILES[0]
        yield from with_epilogues("tensorcore", "tensorcore.cu", forms, tile.threads, every)
        for store in stores[2:]:
            yield "tensorcore", "tensorcore.cu", (*light, *loads, *of_tile, *store), tile.threads
    for mma_tile in MMA_TILES:
        of_tile = (("PRODUCTS", mma_tile.products), ("TILE_N", mma_tile.n), ("STAGES", mma_tile.stages))
        yield from with_epilogues("mma", "mma.cu", [(*of_tile, ("SPLIT", 0), ("C_VECTOR", v)) for v in (0, 1)], 256)
        for v in (0, 1):
            yield "mma", "mma.cu", (*light, *of_tile, ("SPLIT", 1), ("C_VECTOR", v)), 256
