"""How packing reads lines at any multiple of 4 bytes: on the host by the simulator (simulated.py), and on a GPU."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

import mm32
from mm32 import gemm
from mm32.plan import H200, cost, packing, plan, sources
from support import simulated
from support.gpu import forget_plans

simulate = pytest.mark.skipif(simulated.COMPILER is None, reason="no C++ compiler")
UNIT_ROWS = 16

# Reads units as mm32_pack does, one after another through the same shared memory, but without splitting and packing them.
# A unit is 16 rows and up to 512 places of K; `out` has room for whole units.
PROGRAM = """
#include "@SIMULATOR@"
@SOURCE@
struct Job { const float* data; long long row_stride, k_stride; int rows, depth, along_rows, blocks_a_unit; float* out; };
static void read_units(const Job& job) {
    char* const staging = simulator::dynamic();
    const int chunk_depth = 64 * job.blocks_a_unit, chunks = (job.depth + chunk_depth - 1) / chunk_depth;
    const int units = (job.rows + 15) / 16 * chunks;
    for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const int row0 = unit / chunks * 16, k0 = unit % chunks * chunk_depth;
        const int left = min(job.depth - k0, chunk_depth);
        ShiftedLines lines(job.data + row0 * job.row_stride + k0 * job.k_stride, job.row_stride, job.k_stride, job.along_rows,
                           job.rows - row0, left, shared_address(staging));
        float* to = job.out + (row0 + threadIdx.x / 16) * (long long)(chunks * chunk_depth) + k0 + threadIdx.x % 16 * 4;
        lines.each_block((left + 63) / 64, [&](const float (&v)[4]) {
            for (int j = 0; j < 4; j++) to[j] = v[j];
            to += 64;
        });
    }
}
extern "C" void run(const Job* job, int blocks, const char* begin, const char* end) {
    simulator::operand_begin = begin, simulator::operand_end = end;
    simulator::run(blocks, 256, ShiftedLines::BYTES, [&] { read_units(*job); });
    simulator::operand_begin = simulator::operand_end = nullptr;  // other programs share the variables
}
"""


class Job(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("row_stride", ctypes.c_longlong), ("k_stride", ctypes.c_longlong), ("rows", ctypes.c_int),
        ("depth", ctypes.c_int), ("along_rows", ctypes.c_int), ("blocks_a_unit", ctypes.c_int), ("out", ctypes.c_void_p),
    )  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    text = PROGRAM.replace("@SIMULATOR@", str(simulated.SIMULATOR))
    text = text.replace("@SOURCE@", simulated.source("emulated/shifted_lines.cuh"))
    return simulated.compiled(text, tmp_path_factory.mktemp("simulated"))


def read(
    library: ctypes.CDLL, rows: int, depth: int, along_rows: bool, offset: int, stride: int, blocks_a_unit: int = 8
) -> None:
    """Read an operand whose lines are `stride` floats apart, the first of them `offset` floats from a multiple of 16 bytes.
    Assert that every element is right, with zeros around."""
    lines, length = (depth, rows) if along_rows else (rows, depth)
    memory = simulated.aligned((lines - 1) * stride + length, offset)
    memory[:] = np.arange(1, memory.size + 1)
    operand = np.lib.stride_tricks.as_strided(memory, (lines, length), (4 * stride, 4))
    operand = operand.T if along_rows else operand
    chunk = 64 * blocks_a_unit
    out = np.full((-(-rows // 16) * 16, -(-depth // chunk) * chunk), np.nan, np.float32)
    row_stride, k_stride = (1, stride) if along_rows else (stride, 1)
    job = Job(memory.ctypes.data, row_stride, k_stride, rows, depth, along_rows, blocks_a_unit, out.ctypes.data)
    begin, end = memory.ctypes.data, memory.ctypes.data + memory.nbytes
    library.run(ctypes.byref(job), 1, ctypes.c_void_p(begin), ctypes.c_void_p(end))
    wanted = np.zeros_like(out)
    wanted[:rows, :depth] = operand
    # Only existing K-blocks are read.
    existing = np.arange(out.shape[1]) < -(-depth // 64) * 64
    assert np.array_equal(out[:, existing], wanted[:, existing])
    assert np.isnan(out[:, ~existing]).all()


@simulate
@pytest.mark.parametrize("along_rows", [False, True])
@pytest.mark.parametrize("offset", [0, 1, 2, 3])
@pytest.mark.parametrize("more", [0, 1, 2, 3])  # the line's stride, modulo 4
def test_lines_at_every_alignment(along_rows: bool, offset: int, more: int, library: ctypes.CDLL) -> None:
    """There may be two units of rows, the second with fewer rows, and more K-blocks than stages, the last one not full."""
    for rows, depth in ((23, 261), (16, 64)):
        length = rows if along_rows else depth
        read(library, rows, depth, along_rows, offset, length + (more - length) % 4)


@simulate
@pytest.mark.parametrize("along_rows", [False, True])
@pytest.mark.parametrize(
    ("rows", "depth"), [(1, 1), (1, 64), (2, 63), (3, 65), (5, 66), (13, 67), (14, 3), (15, 130), (17, 191), (18, 320)]
)
def test_lines_of_every_length(along_rows: bool, rows: int, depth: int, library: ctypes.CDLL) -> None:
    length = rows if along_rows else depth
    for offset, stride in ((1, length), (3, length + 1), (2, length + 5)):
        read(library, rows, depth, along_rows, offset, stride, blocks_a_unit=2)


@simulate
@pytest.mark.parametrize("along_rows", [False, True])
def test_lines_that_are_one(along_rows: bool, library: ctypes.CDLL) -> None:
    """All lines may be one, with a stride of 0, as in an expanded tensor."""
    read(library, 20, 70, along_rows, 1, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Plans


@pytest.mark.parametrize(("layout", "loads"), [("nn", (5, 4)), ("nt", (5, 5)), ("tn", (4, 4)), ("tt", (4, 5))])
def test_packing_reads_contiguous_lines_by_16_bytes(layout: str, loads: tuple[int, int]) -> None:
    made = plan(gemm.from_layout(layout, 2047, 2047, 2047), H200, "tensorcore")
    packs = [dict(launch.constants) for launch in made.launches if launch.source == "emulated/pack.cu"]
    assert {(x["A_LOAD"], x["B_LOAD"]) for x in packs} == {loads}
    multiplies = [dict(launch.constants) for launch in made.launches if launch.entry == "mm32_tensorcore"]
    assert {(x["A_UNIT_ROWS"], x["B_UNIT_ROWS"]) for x in multiplies} == {(UNIT_ROWS, UNIT_ROWS)}
    # They are packed by the same launches as aligned lines, one after another.
    aligned = plan(gemm.from_layout(layout, 2048, 2048, 2048), H200, "tensorcore")
    assert [x.entry for x in made.launches] == [x.entry for x in aligned.launches]
    assert {x.grid(made.gemm) for x in made.launches if x.entry == "mm32_pack"} == {sources.PACKERS * H200.sms}


def test_packing_reads_other_strides_by_4_bytes() -> None:
    a = torch.empty(300, 600)[:, ::2]
    asked = gemm.describe(a, torch.empty(300, 301), None, torch.empty(300, 301))
    made = plan(asked, H200, "tensorcore")
    constants = dict(made.launches[0].constants)
    assert (constants["A_LOAD"], constants["B_LOAD"]) == (1, 4)


def test_one_operand_that_is_not_aligned_decides_for_aligned_lines_along_rows() -> None:
    for sizes, loads in (((300, 301, 304), (5, 4)), ((300, 304, 301), (2, 4)), ((304, 304, 304), (2, 0))):
        m, k, n = sizes
        made = plan(gemm.from_layout("nn", m, n, k), H200, "tensorcore")
        constants = dict(made.launches[0].constants)
        assert (constants["A_LOAD"], constants["B_LOAD"]) == loads


def test_a_multiply_that_packs_inline_reads_whole_fours_as_before() -> None:
    asked = packing.operands(gemm.from_layout("nn", 300, 304, 301))
    assert (asked.loads, asked.inline_loads) == ((5, 4), (3, 0))
    asked = packing.operands(gemm.from_layout("tt", 300, 304, 301))
    assert (asked.loads, asked.inline_loads) == ((4, 5), (0, 3))
    asked = packing.operands(gemm.from_layout("nt", 301, 303, 299))
    assert (asked.loads, asked.inline_loads) == ((5, 5), (3, 3))


# ---------------------------------------------------------------------------------------------------------------------
# On a GPU


def placed(x: torch.Tensor, offset: int, stride: int) -> torch.Tensor:
    """Return x in memory of its own, with lines `stride` apart, the first `offset` floats from a multiple of 16 bytes, and NaN
    around."""
    memory = torch.full((offset + x.shape[0] * stride + 4,), float("nan"), device="cuda")
    there = memory[offset:].as_strided(x.shape, (stride, 1))
    there.copy_(x)
    return there


SIZES = [(333, 517, 261), (130, 1025, 70), (1025, 1025, 1025), (64, 300, 3001), (17, 640, 2047)]


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["tensorcore", "mma"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_bits_are_those_of_aligned_lines(
    sizes: tuple[int, int, int], layout: str, kernel: str, precision: str, panels_only: None, seed: int
) -> None:
    """The alignment of operands must not change a result: each alignment of each operand is compared with aligned copies, by the
    same tile."""
    m, k, n = sizes
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    a[0] *= 1e-3  # because packing counts small elements
    lines = (a if layout[0] == "n" else a.T), (b if layout[1] == "n" else b.T)

    def product(offsets: tuple[int, int], more: tuple[int, int]) -> torch.Tensor:
        x, y = (
            placed(of, offset, of.shape[1] + (by - of.shape[1]) % 4)
            for of, offset, by in zip(lines, offsets, more, strict=True)
        )
        return mm32.matmul(
            x if layout[0] == "n" else x.T, y if layout[1] == "n" else y.T, kernel=kernel, precision=precision
        )

    wanted = product((0, 0), (0, 0))
    truth = a.double() @ b.double()
    assert float((wanted - truth).norm() / truth.norm()) < (1e-6 if precision == "fp32" else 1e-3)
    for offset in range(4):
        for by in range(4):
            assert torch.equal(product((offset, 3 - offset), (by, (by + offset) % 4)), wanted), (offset, by)


@pytest.mark.gpu
def test_the_lower_tier_reads_them_too(panels_only: None, seed: int) -> None:
    """Most of these data fail the accept test: rows span much, at any alignment, in batches."""
    with cost.shares({"lower.launches": 0.0}):
        forget_plans()
        a = torch.randn(2, 700, 1025, device="cuda") * torch.exp(4 * torch.randn(2, 700, 1025, device="cuda"))
        b = torch.randn(2, 1025, 517, device="cuda") * torch.exp(4 * torch.randn(2, 1025, 517, device="cuda"))
        wanted = mm32.matmul(a, b, kernel="tensorcore")
        truth, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        assert float(((wanted - truth).abs() / size).max()) < 1e-6
        for x in (a, a.mT.contiguous().mT):
            for y in (b, b.mT.contiguous().mT):
                assert torch.equal(mm32.matmul(x, y, kernel="tensorcore"), wanted)
    forget_plans()
