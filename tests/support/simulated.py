"""The kernel `direct` on the host: its source, compiled by the host's C++ compiler against simulator/cuda.hpp, run on numpy
arrays. `compiled` compiles any program.

The simulator replaces the headers in kernels/ptx/ and the parts of CUDA that the kernel uses. It cannot show what truncation on
tensor cores costs (mm32/numerics models that), nor memory hazards that only a card has.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np

from mm32.cuda import compile as compiler
from mm32.cuda.launch import _template
from mm32.gemm import Gemm
from mm32.plan import Plan

COMPILER = shutil.which("g++") or shutil.which("c++")
SIMULATOR = Path(__file__).with_name("simulator") / "cuda.hpp"
SHARED = re.compile(r"__shared__ __align__\(16\) Shared shared;")
DYNAMIC = re.compile(r"extern __shared__ __align__\(16\) char dynamic\[\];")


def source(name: str) -> str:
    """Return a kernel's text with its headers, except those of ptx/."""
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen or name.startswith("ptx/"):
            return ""
        seen.add(name)
        text = re.sub(r"^#pragma once\n", "", (compiler.KERNEL_DIR / name).read_text(), flags=re.M)
        return re.sub(r'^#include "([\w./]+)"\n', lambda m: expand(m[1]), text, flags=re.M)

    return expand(name)


def build(plan: Plan, folder: Path) -> ctypes.CDLL:
    """Return the library for a plan's only launch."""
    (launch,) = plan.launches
    text = source(launch.source)
    text, shared = SHARED.subn("Shared& shared = simulator::place<Shared>();", text)
    text, dynamic = DYNAMIC.subn("char* const dynamic = simulator::dynamic();", text)
    assert (shared, dynamic) == (1, 1)
    return compiled(
        f'{compiler.definitions(launch.constants)}#include "{SIMULATOR}"\n{text}\n'
        f'extern "C" void run(const Problem* p, int blocks) {{\n'
        f"    simulator::run(blocks, {launch.block}, {launch.shared}, [&] {{ {launch.entry}(*p); }});\n}}\n",
        folder,
    )


def compiled(program: str, folder: Path) -> ctypes.CDLL:
    """Return the library of a C++ program, kept in `folder`, which processes may share."""
    at = folder / f"{hashlib.sha256(program.encode()).hexdigest()[:16]}.so"
    if not at.exists():
        assert COMPILER is not None
        made = at.with_suffix(f".{os.getpid()}")
        # -O1: with -O2 these tests take a third longer, and the arrays are small.
        command = [
            COMPILER,
            "-std=c++17",
            "-O1",
            "-fno-strict-aliasing",
            "-w",
            "-shared",
            "-fPIC",
            "-x",
            "c++",
            "-",
            "-o",
            str(made),
        ]
        subprocess.run(command, input=program, text=True, check=True)
        made.replace(at)
    return ctypes.CDLL(str(at))


def aligned(count: int, offset: int = 0) -> np.ndarray:
    """Return `count` floats, the first of them `offset` floats from a multiple of 16 bytes."""
    raw = np.zeros(count + 8, np.float32)
    first = -raw.ctypes.data // 4 % 4 + offset
    return raw[first : first + count]


def run(
    plan: Plan, gemm: Gemm, a: np.ndarray, b: np.ndarray, c: np.ndarray, bias: np.ndarray | None, folder: Path
) -> None:
    """Run the plan's launch on the flat arrays `a`, `b` and `c`, whose layouts are those of `gemm`."""
    problem = _template(gemm)
    problem.a.data, problem.b.data, problem.c.data = (x.ctypes.data for x in (a, b, c))
    if bias is not None:
        problem.bias = bias.ctypes.data
    (launch,) = plan.launches
    build(plan, folder).run(ctypes.byref(problem), launch.grid(gemm))
