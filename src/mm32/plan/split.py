"""The planners of the kernels that split operands for the tensor cores, mma and tensorcore: scale and pack the operands, multiply
their panels, add up parts of K, and the careful path. And of packing alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from mm32.gemm import Gemm, Matrix
from mm32.plan import data
from mm32.plan.data import (
    NO_EPILOGUE,
    SPLIT_KERNELS,
    Constants,
    Device,
    Launch,
    Plan,
    Unplannable,
    Workspace,
    epilogue,
    unsupported,
)
from mm32.plan.fp32 import LAUNCH, MOST_PARTIALS, REDUCE, SPLITS, reduction, simt, traffic_of

BLOCK_K, CHUNK, TILE_M = 64, 8, 128  # as in split.cuh and tiles.cuh
QUEUE = 65536  # bytes, as in direct.cuh
GROUP = 8
SHORT_K = 256  # below it tensorcore promotes every 16 of K, and mma's error may pass that of an fp32 sum
SHORTEST_K = 32  # below it tensorcore's may
MAX_ROWS = 2**24 - 8  # a plane of panels has 128 bytes a row, padded to 8 rows and counted in 31 bits


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


def tensor_form(tile: TensorTile) -> Constants:
    return (("TILE_N", tile.n), ("STAGES", tile.stages), ("INLINE_PACK", int(tile.direct)), ("PROMOTE", tile.promote))


TENSOR_TILES = (
    TensorTile(128, 3, 3, 0.96e-6, 2.5e-6),
    TensorTile(64, 3, 4, 0.68e-6, 3.5e-6),
    TensorTile(256, 1, 4, 0.67e-6, 5e-6),
    TensorTile(128, 1, 6, 0.45e-6, 2.5e-6),
    TensorTile(64, 1, 6, 0.30e-6, 2.5e-6),
    TensorTile(128, 3, 2, 1.82e-6, 15e-6, True),
    TensorTile(64, 3, 3, 1.35e-6, 13e-6, True),
    TensorTile(128, 1, 4, 1.05e-6, 14e-6, True),
    TensorTile(64, 1, 5, 0.80e-6, 12e-6, True),
    TensorTile(128, 3, 3, 1.25e-6, 1.95e-6, False, 1),
)
# A guess, not measured: 300 TFLOP/s of fp16 products on 132 multiprocessors; a TILE_N of 64 as much less as in TENSOR_TILES.
MMA_TILES = (
    MmaTile(128, 3, 2.8e-6),
    MmaTile(64, 3, 1.5e-6),
    MmaTile(128, 1, 0.95e-6),
    MmaTile(64, 1, 0.5e-6),
)
PACK_ALONE, PACK_BESIDE = 3.5e12, 2.0e12  # bytes a second, all blocks or one a multiprocessor
DIRECT_STREAM = 2.6e12  # bytes a second that direct tiles reach where memory bounds them
PACK_ONLY_BESIDE = 1.15e12  # where the multiply waits for it
JUDGE = 1.3e-9  # seconds a row: one block judges, beside the multiply
PACKERS = 4  # blocks of mm32_pack that a multiprocessor holds
LEAST_BLOCKS = 4  # K-blocks of a part of K
UNIT, UNIT_SCATTERED = 6e-6, 15e-6  # seconds that a block of mm32_pack takes for a unit, at least; 4 bytes at a time
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


def _matrices(gemm: Gemm) -> tuple[int, int]:
    """How many matrices of A, and of B, there are to pack: one where the whole batch has the same."""
    a, b = (gemm.batches if any(matrix.batch) else 1 for matrix in (gemm.a, gemm.b))
    return a, b


def _workspace(
    gemm: Gemm,
    products: int,
    splits: int,
    first: tuple[int, int],
    direct: bool = False,
    before: tuple[bool, bool] = (False, False),
) -> Workspace:
    planes, blocks = (2 if products == 3 else 1), -(-gemm.k // BLOCK_K)
    matrices = _matrices(gemm)
    at = 0

    def take(count: int) -> int:
        nonlocal at
        start, at = at, at + -(-count // 256) * 256
        return start

    sides = tuple((x, 0 if b else rows) for x, rows, b in zip(matrices, (gemm.m, gemm.n), before, strict=True))
    panels = tuple(take(0 if direct else x * blocks * planes * -(-rows // 8) * 8 * 128) for x, rows in sides)
    stats = tuple(take(x * rows * 32) for x, rows in sides)
    ready = tuple(take(x * -(-rows // 128) * -(-blocks // CHUNK) * 4) for x, rows in sides)
    verdict = take(16 + 2 * 512 * 12)  # struct Verdict
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
    packers = min(max(units, 1), device.sms * (1 if overlap else PACKERS))  # one at least: it judges
    early = device.capability >= (9, 0)  # before it, launches cannot overlap
    return [
        Launch(
            "emulated/pack.cu",
            "mm32_scale",
            constants,
            256,
            0,
            blocks=min(max(groups, 1), data.MAX_GRID),
            argument="split",
        ),
        Launch("emulated/pack.cu", "mm32_pack", constants, 256, 0, blocks=packers, argument="split", early=early),
    ]


def packed_bytes(gemm: Gemm, side: int) -> int:
    """The size of what `pack` makes of operand `side` of `gemm`."""
    return _workspace(_alone(gemm, side), _products(gemm), 1, (0, 0)).bytes


def _products(gemm: Gemm) -> int:
    return 1 if gemm.precision == "tf32" else 3


def split_kernel(device: Device) -> str:
    """The one of SPLIT_KERNELS that is for `device`: the packed form is the same."""
    return "mma" if unsupported("tensorcore", device) else "tensorcore"


def pack(gemm: Gemm, device: Device, side: int) -> Plan:
    """The plan that packs operand `side` (0: A, 1: B) of `gemm`, in which it must be one matrix, for plans with `before`. Its
    workspace is what is kept.

    Raises `Unplannable` where no tensor-core kernel would be chosen for it, and why.
    """
    kernel = split_kernel(device)
    why = unsupported(kernel, device) or unsuited(kernel, gemm) or too_short(gemm, kernel)
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


def tensorcore(gemm: Gemm, device: Device, before: tuple[bool, bool] = (False, False)) -> tuple[Plan, float]:
    # direct.cuh has 32-bit offsets within a tile
    small = max(gemm.a.row, gemm.a.col, gemm.b.row, gemm.b.col) < 2**23
    tiles = [tile for tile in TENSOR_TILES if not tile.direct or (small and not any(before))]
    return _by_split(gemm, device, "tensorcore", tiles, before)


def mma(gemm: Gemm, device: Device, before: tuple[bool, bool] = (False, False)) -> tuple[Plan, float]:
    # GeForce cards add up fp16 products in fp32 at half the rate (NVIDIA's whitepapers on GA102 and AD102).
    slower = 2.0 if "GeForce" in device.name else 1.0
    return _by_split(gemm, device, "mma", [replace(tile, step=slower * tile.step) for tile in MMA_TILES], before)


def splits_to_try(tiles: int, k_blocks: int, device: Device) -> list[int]:
    """Numbers of parts that K may be shared out in, one that gives each multiprocessor a tile among them."""
    return [s for s in sorted({*SPLITS, max(device.sms // tiles, 1)}) if s == 1 or s * LEAST_BLOCKS <= k_blocks]


def _by_split(
    gemm: Gemm,
    device: Device,
    kernel: str,
    tiles: Sequence[TensorTile | MmaTile],
    before: tuple[bool, bool] = (False, False),
) -> tuple[Plan, float]:
    if gemm.k == 0 or gemm.empty:  # nothing to multiply: the epilogue of zeros
        return replace(simt(gemm, device)[0], kernel=kernel), 2 * LAUNCH
    products = _products(gemm)
    k_blocks = -(-gemm.k // BLOCK_K)
    rows = -(-gemm.m // TILE_M)
    matrices = _matrices(gemm)
    scaled = matrices[0] * gemm.m + matrices[1] * gemm.n
    elements = (matrices[0] * gemm.m * gemm.k, matrices[1] * gemm.n * gemm.k)
    traffic = 8.0 if products == 3 else 6.0
    modes = _pack_mode(gemm.a, "row"), _pack_mode(gemm.b, "col")
    # The 16-byte loads of direct tiles need whole fours of the axis they lie along; the odd modes load 4 bytes at a time.
    direct_modes = (
        modes[0] | int((gemm.k if modes[0] >= 2 else gemm.m) % 4 != 0),
        modes[1] | int((gemm.k if modes[1] >= 2 else gemm.n) % 4 != 0),
    )
    scattered = any(mode % 2 for mode in direct_modes)
    units, unit = _units(gemm, matrices, modes), UNIT_SCATTERED if any(mode % 2 for mode in modes) else UNIT

    def tiles_of(tile: TensorTile | MmaTile) -> int:
        return gemm.batches * rows * -(-gemm.n // tile.n)

    def suits(tile: TensorTile | MmaTile) -> bool:
        short = kernel == "tensorcore" and products == 3 and gemm.k < SHORT_K
        return tile.products == products and (tile.promote == 1) == short

    def estimate(tile: TensorTile | MmaTile, splits: int, packed: float) -> tuple[float, bool]:
        """Seconds, and whether to pack while multiplying, with `packed` bytes to move for that."""
        waves = -(-tiles_of(tile) * splits // device.sms)
        blocks = -(-k_blocks // splits)
        step = tile.step
        if tile.direct and (gemm.batches > 1 or scattered):  # measured; not understood for batches
            step *= 2.5
        multiply = waves * (blocks * step + tile.around)
        multiply += gemm.batches * gemm.m * gemm.n * 4 * splits / MEMORY / waves  # the last wave's stores stand alone
        reduce = REDUCE + gemm.batches * gemm.m * gemm.n * 4 * (splits + 1) / MEMORY if splits > 1 else 0.0
        rest = 11e-6 + 0.3e-9 * scaled + reduce  # mm32_scale, mm32_careful
        if tile.direct:
            return max(multiply, traffic_of(gemm) / DIRECT_STREAM) + rest, False
        multiply = max(multiply, JUDGE * scaled)
        waves_of_units = -(-units // (PACKERS * device.sms)) if packed else 0
        in_turn = max(packed / PACK_ALONE, waves_of_units * unit) + multiply
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
        for splits in splits_to_try(tiles_of(tile), k_blocks, device)
        if (splits == 1 or splits * gemm.batches * gemm.m * gemm.n <= MOST_PARTIALS)
        and (not tile.direct or k_blocks <= 4000 * splits)  # 16 bits for counts of 16 a K-block
    ]
    # The tile and the splits are those of a call without packed operands, and so are the bits, but where that would take a
    # direct tile.
    _, _, tile, splits = min(options, key=lambda o: o[0])
    left = traffic * sum(e for e, b in zip(elements, before, strict=True) if not b)
    seconds, overlap = estimate(tile, splits, left)
    if tile.direct:
        modes = direct_modes
    else:
        modes = BEFORE if before[0] else modes[0], BEFORE if before[1] else modes[1]
    loads = (("A_LOAD", modes[0]), ("B_LOAD", modes[1]))
    last, form = epilogue(gemm), (("PRODUCTS", products),)
    waited_for = (("A_UNIT_ROWS", _unit_rows(modes[0])), ("B_UNIT_ROWS", _unit_rows(modes[1])))
    multiply = (
        *(last if splits == 1 else NO_EPILOGUE),
        *form,
        *(loads if tile.direct else waited_for if kernel == "tensorcore" else ()),
        *(tensor_form(tile) if isinstance(tile, TensorTile) else (("TILE_N", tile.n), ("STAGES", tile.stages))),
        ("SPLIT_K", int(splits > 1)),
        ("C_VECTOR", int(gemm.out.vectorizable("col") if splits == 1 else gemm.n % 4 == 0)),
    )
    work = tiles_of(tile) * splits
    # All blocks of mm32_pack are on the card at once: the multiply's come as they leave, and nobody waits for the launch.
    # Where K is short, the judgement at its end takes longer than what little a tile would gain from its neighbours.
    at_once = _units(gemm, matrices, modes) <= PACKERS * device.sms or gemm.k <= 512
    counted = kernel == "tensorcore" and (overlap or tile.direct or at_once)
    # The tiles that the blocks start with: `height` rows of tiles, and as many columns as there are blocks for.
    height = min(GROUP, rows)
    first = (min(gemm.m, height * TILE_M), min(gemm.n, -(-device.sms // height) * tile.n)) if counted else (0, 0)
    space = _workspace(gemm, products, splits, first, tile.direct, before)
    launches = _pack_launches(gemm, device, products, matrices, modes, overlap)
    if tile.direct:
        del launches[1]
    if kernel == "tensorcore":
        launches.append(
            Launch(
                "emulated/tensorcore.cu",
                "mm32_tensorcore",
                multiply,
                tile.threads,
                tile.shared,
                blocks=min(device.sms, work),
                argument="split",
                early=True,
            )
        )
    else:
        blocks = min(data.MAX_GRID, work)
        launches.append(
            Launch("emulated/mma.cu", "mm32_mma", multiply, tile.threads, tile.shared, blocks=blocks, argument="split")
        )
    if splits > 1:
        launches.append(reduction(gemm, device))
    fma = simt(gemm, device, accurate=True)[0].launches[0]
    launches.append(
        Launch(
            "emulated/fallback.cu",
            "mm32_fallback",
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


def too_short(gemm: Gemm, kernel: str) -> str | None:
    """Why "auto" does not take one of SPLIT_KERNELS for a sum of so few products, or None."""
    shortest = SHORTEST_K if kernel == "tensorcore" else SHORT_K
    if gemm.precision == "fp32" and gemm.k < shortest:
        return f"below K={shortest} its error may pass an fp32 matmul's (docs/numerics.md)"
    return None
