"""An emulated product on the host: the kernels that pack, decide and recompute run in the simulator, the multiplies in the model.

The kernels' own text runs: mm32_scale, mm32_pack, the judging of decide.cuh, mm32_fallback, launch after launch, in one
workspace. A multiply is replaced by the model's product by the requested tier (mm32/numerics).
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mm32 import numerics
from mm32.cuda import compile as compiler
from mm32.cuda import launch as launcher
from mm32.gemm import Gemm
from mm32.numerics import BF16X6, FP16X3, SCALED_LO
from mm32.plan import Launch, Plan, packing, sources
from support import simulated

DECIDING = simulated.SIMULATOR.with_name("deciding.hpp")
TYPE = r"unsigned short|unsigned char|unsigned long long|long long|unsigned|float|char|[A-Z]\w*"
SHARED = re.compile(rf"__shared__ (?:__align__\(\d+\) )?({TYPE}) ([^;]+);")
DYNAMIC = re.compile(r"extern __shared__ __align__\(16\) float (\w+)\[\];")
JUDGES = 96  # threads, as in emulated/tensorcore.cu
# What the judge() of mm32_tensorcore does, in the threads that do not multiply.
JUDGE = """
static void judge(const Params& s) {
    Deciding& d = simulator::shared_variable<Deciding, 9999>();
    const int thread = threadIdx.x;
    if (!MM32_GUARDED && s.decision->early) return;
    const Flags flags(s);
    if (!MM32_GUARDED && flags.nothing_finite()) return;
    const bool scaled_lo = flags.scaled_lo();
    const AcceptTest test(s, scaled_lo);
    load_partners<%d>(s, thread, test, d);
    const int a_units = (int)row_tiles(s, 0) * REDUCERS, units = a_units + (int)row_tiles(s, 1) * REDUCERS;
    for (int i = thread / 32; i < units; i += %d / 32)
        reduce_rows<true>(s, i >= a_units, i >= a_units ? i - a_units : i, test, d);
    any_of<%d>(false);
    decide<%d, !MM32_GUARDED, false, false>(s, thread, scaled_lo, d);
}
extern "C" void run_judge(const Params* s) { simulator::run(1, %d, 0, [&] { judge(*s); }); }
""".replace("%d", str(JUDGES))


def with_shared(text: str) -> str:
    """Return a kernel's text with variables of the simulated block's memory in place of those declared as __shared__."""
    text = DYNAMIC.sub(r"float* const \1 = reinterpret_cast<float*>(simulator::dynamic());", text)
    number = 0

    def declared(match: re.Match[str]) -> str:
        nonlocal number
        lines = []
        for name, sizes in re.findall(r"(\w+)((?:\[[^\]]*\])*)(?:, |$)", match[2]):
            number += 1
            kept = f"simulator::shared_variable<Shared{number}, {number}>()"
            lines.append(f"using Shared{number} = {match[1]}{sizes}; auto& {name} = {kept};")
        return " ".join(lines)

    return SHARED.sub(declared, text)


def build(launch: Launch, folder: Path) -> ctypes.CDLL:
    text = with_shared(simulated.source(launch.source))
    judge = JUDGE if launch.source == "emulated/pack.cu" else ""
    return simulated.compiled(
        f'{compiler.definitions(launch.constants)}#define MM32_CLUSTER {launch.cluster}\n#include "{DECIDING}"\n{text}\n'
        f'extern "C" void run(const Params* s, int blocks) {{\n'
        f"    simulator::run(blocks, {launch.block}, {launch.shared}, [&] {{ {launch.entry}(*s); }});\n}}\n{judge}",
        folder,
    )


class Head(ctypes.Structure):
    """The beginning of struct Decision (emulated/stats.cuh)."""

    _fields_ = (
        ("tier", ctypes.c_uint), ("decided", ctypes.c_uint), ("unsure", ctypes.c_uint), ("recomputed", ctypes.c_uint),
        ("scaled_lo", ctypes.c_uint), ("finished", ctypes.c_uint * 2), ("packed", ctypes.c_uint), ("judged", ctypes.c_uint),
        ("tiny", ctypes.c_uint), ("not_finite", ctypes.c_uint * 2), ("out_of_range", ctypes.c_uint * 2),
        ("alone", ctypes.c_uint * 2), ("outliers", ctypes.c_uint * 2), ("few_outliers", ctypes.c_uint),
        ("early", ctypes.c_uint),
    )  # fmt: skip


# struct RowStats
STATS = np.dtype([("big", "<u8", (2, 2)), ("scale", "<u4"), ("largest", "<u4"), ("small", "<u4"), ("regular", "<u4")])


def of_places(rows: int) -> int:
    """Return the offset, from the start of an operand's stats, of the places of the largest elements (emulated/panels.cuh)."""
    blocks = packing.SCALE_BLOCKS
    return STATS.itemsize * rows + 4 * blocks + 4 * sources.SAMPLES * min(-(-rows // 32), blocks)


@dataclass
class Outcome:
    c: np.ndarray  # (M, N)
    tier: str
    early: bool
    unsure: bool
    sampled: tuple[np.ndarray, np.ndarray]  # STATS of A's rows and of B's columns, after mm32_scale
    largest_at: list[np.ndarray]  # the place of each one's largest element, as in numerics.decision


def run(plan: Plan, gemm: Gemm, a: np.ndarray, b: np.ndarray, folder: Path) -> Outcome:
    """Multiply A (M, K) by B (K, N), both float32 and stored in the layouts of `gemm`."""
    assert plan.workspace is not None
    memory = np.zeros(plan.workspace.bytes + 512, np.uint8)
    base = -(-memory.ctypes.data // 256) * 256
    c = simulated.aligned(gemm.m * gemm.n)
    c[:] = np.nan
    problem = launcher._template(gemm)
    stored = []
    for matrix, x in ((gemm.a, a), (gemm.b, b)):
        lies, apart = (x, matrix.row) if matrix.col == 1 else (x.T, matrix.col)
        flat = simulated.aligned(len(lies) * apart)
        flat[:] = np.nan  # remains between lines whose distance exceeds their length
        flat.reshape(len(lies), apart)[:, : lies.shape[1]] = lies
        stored.append(flat)
    problem.a.data, problem.b.data, problem.c.data = (x.ctypes.data for x in (*stored, c))
    rows = (gemm.m, gemm.n)
    stats = tuple(
        np.frombuffer(memory, STATS, rows[i], base - memory.ctypes.data + plan.workspace.stats[i]) for i in range(2)
    )
    places = [
        np.frombuffer(
            memory, np.int32, rows[i], base - memory.ctypes.data + plan.workspace.stats[i] + of_places(rows[i])
        )
        for i in range(2)
    ]
    head = Head.from_address(base + plan.workspace.decision)
    sampled: tuple[np.ndarray, np.ndarray] | None = None

    def multiplied(tier: str) -> None:
        c[:] = numerics.product(a, b, tier).ravel()

    packer: ctypes.CDLL | None = None
    for launch in plan.launches:
        params = launcher._params(problem, plan.workspace_of(launch), base, base, base)
        if launch.entry == "mm32_tensorcore":
            assert packer is not None
            if launch.lower:
                if head.tier == 1:
                    multiplied(BF16X6)
                    if head.early:
                        packer.run_judge(ctypes.byref(params))
            else:
                packer.run_judge(ctypes.byref(params))
                if head.tier == 0:
                    multiplied(SCALED_LO if head.scaled_lo else FP16X3)
            continue
        if launch.entry == "mm32_reduce":
            continue
        made = build(launch, folder)
        made.run(ctypes.byref(params), launch.grid(gemm))
        if launch.entry == "mm32_pack":
            packer = made
        if launch.entry == "mm32_scale":
            sampled = stats[0].copy(), stats[1].copy()
    assert sampled is not None
    tier = {0: SCALED_LO if head.scaled_lo else FP16X3, 1: BF16X6, 2: numerics.FMA}[head.tier]
    return Outcome(c.reshape(gemm.m, gemm.n), tier, bool(head.early), bool(head.unsure), sampled, places)
