"""The planners of the kernels that compute by fp32 multiply-adds: naive, dot, tiled, simt.

A planner returns the plan, without a reason, and its estimate of the time in seconds. The rates were measured on an H200
(docs/kernels.md); they order the kernels, they do not predict a run to the per cent.
"""

from __future__ import annotations

from dataclasses import dataclass

from mm32.gemm import Gemm, Matrix
from mm32.plan.data import Constants, Device, Launch, Plan, epilogue


def naive(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    along_m = gemm.b.col != 1 and gemm.a.row == 1
    constants = (*epilogue(gemm), ("ALONG_M", int(along_m)))
    made = Plan(gemm, device, "naive", (Launch("naive.cu", "mm32_naive", constants, 128, 0, (128,)),))
    coalesced = (gemm.b.col in (0, 1)) if not along_m else True
    busy = min(1.0, gemm.batches * gemm.m * gemm.n / (device.sms * 1024))
    rate = (4.0e12 if coalesced else 0.7e12) * busy * device.sms / 132
    stores = gemm.batches * gemm.m * gemm.n * 4.0 / 0.7e12
    return made, gemm.flops / max(rate, 1.0) + stores + LAUNCH


def dot(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    made = Plan(gemm, device, "dot", (Launch("dot.cu", "mm32_dot", epilogue(gemm), 256, 0, (1,)),))
    elements = max(1, gemm.batches * gemm.m * gemm.n)  # an empty result is planned too, not launched
    # A block pays its reduction and start, and its reads: a strided one costs a 32-byte sector for each 4-byte element.
    sectors = (1 if gemm.a.col == 1 else 8) + (1 if gemm.b.row == 1 else 8)
    waves = -(-elements // (device.sms * 8))
    reads = elements * gemm.k * 4.0 * sectors / (5.0e12 * min(1.0, elements / (device.sms * 4)) * device.sms / 132)
    return made, max(waves * 1.5e-6, reads) + LAUNCH


def tiled(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    constants = (*epilogue(gemm), ("A_ALONG_K", int(gemm.a.col == 1)), ("B_ALONG_K", int(gemm.b.row == 1)))
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

    def shared(self, loads: tuple[int, int] = (2, 2)) -> int:
        """Bytes of a block, by how its operands come in (`_loads`): the ring, and a queue for each that is turned."""
        ring = 4 * self.stages * self.k * (self.m + self.n + 8)
        queued = self.m * (loads[0] == 2) + self.n * (loads[1] == 2)
        return ring + 4 * (self.stages - 1) * self.k * queued


SIMT_TILES = (
    SimtTile(128, 128, 16, 16, 8, 3, (0.50, 0.70)),
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


def simt(gemm: Gemm, device: Device, accurate: bool = False) -> tuple[Plan, float]:
    def estimate(tile: SimtTile) -> float:
        each = -(-gemm.batches * -(-gemm.m // tile.m) * -(-gemm.n // tile.n) // device.sms)
        step = 2.0 * tile.m * tile.n / (FMA_PEAK * tile.rates[min(max(each, 1), tile.blocks) - 1])
        stream = traffic_of(gemm) / SIMT_STREAM
        return max(each * max(gemm.k, tile.k) * step + 0.45 * stream, stream) + 5e-6 + LAUNCH

    tiles = ACCURATE_TILES if accurate or gemm.k > LONG_K else SIMT_TILES
    loads = _loads(gemm)
    tile = min((t for t in tiles if t.shared(loads) <= device.shared), key=estimate)
    constants, shared = _simt_constants(gemm, tile), tile.shared(loads)
    launch = Launch("simt.cu", "mm32_simt", constants, tile.threads, shared, (tile.m, tile.n))
    return Plan(gemm, device, "simt", (launch,)), estimate(tile)


def _simt_constants(gemm: Gemm, tile: SimtTile) -> Constants:
    c_vector = gemm.out.vectorizable("col") and gemm.n % 4 == 0
    return (*epilogue(gemm), *simt_form(tile, *_loads(gemm), int(c_vector)))


def simt_form(tile: SimtTile, a_load: int, b_load: int, c_vector: int, split: int = 0) -> Constants:
    return (
        ("A_LOAD", a_load),
        ("B_LOAD", b_load),
        ("C_VECTOR", c_vector),
        ("SPLIT", split),
        ("TILE_M", tile.m),
        ("TILE_N", tile.n),
        ("TILE_K", tile.k),
        ("THREAD_M", tile.thread_m),
        ("THREAD_N", tile.thread_n),
        ("STAGES", tile.stages),
        ("PROMOTE", tile.promote),
        ("BLOCKS", tile.blocks),
    )
