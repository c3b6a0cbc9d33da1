"""How a tile of C is stored from registers if rows of C are not aligned (emulated/tiles.cuh): on the host, by the simulator."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from support import simulated

pytestmark = pytest.mark.skipif(simulated.COMPILER is None, reason="no C++ compiler")
TILE = 128

# Stores one tile by 8 warps of 16 rows each. `sums` are those of the whole tile; the exponents of rows and columns are moderate.
PROGRAM = """
#define MM32_TILE_N 128
#define MM32_PRODUCTS 3
#define MM32_SPLIT_K 0
#define MM32_C_VECTOR 0
#define MM32_BIAS 1
#define MM32_ACTIVATION 1
#include "@SIMULATOR@"
@SOURCE@
struct Job {
    float* c;
    long long row, col;
    int m, n, m0, n0, whole;
    const float *sums, *bias;
    const int *rows, *columns;
    double power;
};
struct Memory { ModerateColumns columns; float staging[8][STAGING]; };
static void store_tile(Job& job) {
    static_assert(STAGING * 4 % 16 == 0 && sizeof(ModerateColumns) % 16 == 0);
    Memory& memory = *reinterpret_cast<Memory*>(simulator::dynamic());
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, first = warp * 16;
    if (t < TILE_N) memory.columns.set(t, {{Scale::pack(job.columns[t], 0, 0, 0)}, job.bias[t]}, false);
    power_of_thread(memory.staging[warp]) = 0.f;
    __syncthreads();
    float sum[TILE_N / 2];
    for (int j = 0; j < TILE_N / 8; j++)
        for (int h = 0; h < 2; h++)
            for (int e = 0; e < 2; e++)
                sum[4 * j + 2 * h + e] = job.sums[(first + lane / 4 + 8 * h) * TILE_N + 8 * j + lane % 4 * 2 + e];
    const int exponents[2] = {job.rows[first + lane / 4], job.rows[first + lane / 4 + 8]};
    if (job.whole) {
        const float rows[2] = {one_factor(exponents[0]), one_factor(exponents[1])};
        float* const to = job.c + (job.m0 + first) * job.row + job.n0;
        store_moderate<true>(to, job.row, rows, memory.columns, sum, memory.staging[warp]);
    } else {
        const float2 rows[2] = {two_factors(exponents[0]), two_factors(exponents[1])};
        Problem p{};
        p.m = job.m, p.n = job.n;
        const TileOfPart tile{0, 0, job.m0, job.n0};
        store<true>(p, tile, Target{job.c, job.row, job.col}, job.m0 + first, 0, rows, memory.columns, sum, memory.staging[warp]);
    }
    job.power += power_of_thread(memory.staging[warp]);
}
extern "C" void run(Job* job) {
    simulator::run(1, 256, sizeof(Memory), [&] { store_tile(*job); });
}
"""


class Job(ctypes.Structure):
    _fields_ = (
        ("c", ctypes.c_void_p), ("row", ctypes.c_longlong), ("col", ctypes.c_longlong), ("m", ctypes.c_int), ("n", ctypes.c_int),
        ("m0", ctypes.c_int), ("n0", ctypes.c_int), ("whole", ctypes.c_int), ("sums", ctypes.c_void_p), ("bias", ctypes.c_void_p),
        ("rows", ctypes.c_void_p), ("columns", ctypes.c_void_p), ("power", ctypes.c_double),
    )  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    text = PROGRAM.replace("@SIMULATOR@", str(simulated.SIMULATOR))
    text = text.replace("@SOURCE@", simulated.source("emulated/tiles.cuh"))
    return simulated.compiled(text, tmp_path_factory.mktemp("simulated"))


@pytest.mark.parametrize(
    ("whole", "m", "n", "m0", "n0", "col"),
    [
        (True, 257, 259, 128, 128, 1),
        (True, 129, 131, 0, 0, 1),
        (False, 257, 259, 128, 128, 1),  # the general path takes whole tiles too
        (False, 129, 257, 128, 256, 1),  # one element of the tile exists
        (False, 128, 133, 0, 128, 1),  # five columns exist
        (False, 140, 255, 128, 128, 1),  # twelve rows exist
        (False, 130, 128, 0, 0, 3),  # columns of C lie apart
    ],
)
def test_a_tile_lands_where_it_belongs(
    whole: bool, m: int, n: int, m0: int, n0: int, col: int, library: ctypes.CDLL, seed: int
) -> None:
    """Exactly the elements that exist are stored; the squares of C's watched elements are added up."""
    height, width = min(m - m0, TILE), min(n - n0, TILE)
    rng = np.random.default_rng(seed)
    row = n * col + 2  # the rows of C lie apart
    memory = simulated.aligned(m * row, 1)
    memory[:] = np.nan
    c = np.lib.stride_tricks.as_strided(memory, (m, n), (4 * row, 4 * col))
    sums = rng.standard_normal((TILE, TILE)).astype(np.float32)
    bias = rng.standard_normal(TILE).astype(np.float32)
    rows, columns = (rng.integers(-8, 9, TILE).astype(np.int32) for _ in range(2))
    job = Job(
        memory.ctypes.data, row, col, m, n, m0, n0, whole, sums.ctypes.data, bias.ctypes.data, rows.ctypes.data,
        columns.ctypes.data, 0.0,
    )  # fmt: skip
    library.run(ctypes.byref(job))
    unscaled = np.ldexp(sums, -(rows[:, None] + columns[None, :])).astype(np.float32)
    wanted = np.maximum(unscaled + bias, np.float32(0))
    assert np.array_equal(c[m0 : m0 + height, n0 : n0 + width], wanted[:height, :width])
    c[m0 : m0 + height, n0 : n0 + width] = np.nan
    assert np.isnan(memory).all()
    watched = np.arange(TILE) % 16 < 8
    squares = unscaled.astype(np.float64)[:height, :width][watched[:height]][:, watched[:width]] ** 2
    assert abs(job.power - squares.sum()) <= 1e-5 * squares.sum()
