"""Rates simt's main loop by its SASS, without a card: python benchmarks/sass.py [--tile MxN] [--arch ARCH].

Prints a line for each form: the register-bank cycles of an FMA, the number of instructions by which reads of shared memory come
too late, and the number of instructions in the loop. Fewer of each is faster on the H200 (docs/log/kernels.md, "simt: what was
tried"). Compare forms of one tile, or orders of FMAs, with the compiler that will be used. Needs nvdisasm, from the CUDA toolkit,
in the PATH.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from mm32 import plan as planning
from mm32.cuda import compile as compiler

SOURCE = "fma/simt.cu"
FMA = re.compile(r"FFMA (R\d+), (R\d+)(\.reuse)?, (R\d+)(\.reuse)?, (R\d+)(\.reuse)?")
READ = re.compile(r"LDS\.128 R(\d+),")
BANKS = 2
SLACK = 2  # cycles that a bank may be behind
EARLY = 24  # the instructions that should lie between a read and its use


def main_loop(sass: str) -> list[str]:
    """Return the shortest loop (the body of a backward branch) with at least 512 FMAs. Raises ValueError if there is none."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    loops: list[list[str]] = []
    for line in sass.splitlines():
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = len(instructions)
        elif found := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            instructions.append(found[1])
            back = re.search(r"BRA\S* .*?`\((\.L_\w+)\)", found[1])
            if back and back[1] in labels:
                loops.append(instructions[labels[back[1]] :])
    big = [loop for loop in loops if sum("FFMA" in x for x in loop) >= 512]
    if not big:
        raise ValueError(f"no loop of 512 FMAs among {len(instructions)} instructions")
    return min(big, key=len)


def bank_cycles(loop: Iterable[str]) -> int:
    """Return the cycles that the loop takes to issue.

    Each instruction takes one; a bank (a register's number modulo BANKS) delivers one register a cycle and may be SLACK cycles
    behind. An operand that the previous FMA has kept (.reuse) costs nothing.
    """
    now = 0
    free = [0] * BANKS
    kept: list[str | None] = [None] * 3
    for instruction in loop:
        now += 1
        fma = FMA.match(instruction)
        if fma is None:
            kept = [None] * 3
            continue
        operands, keeps = [fma[i] for i in (2, 4, 6)], [fma[i] for i in (3, 5, 7)]
        fresh = [int(register[1:]) for register, was in zip(operands, kept, strict=True) if register != was]
        for register in fresh:
            free[register % BANKS] = max(free[register % BANKS], now) + 1
        if fresh:
            now = max(now, max(free[register % BANKS] for register in fresh) - SLACK)
        kept = [register if keep else None for register, keep in zip(operands, keeps, strict=True)]
    return now


def late(loop: list[str]) -> int:
    """Return by how many instructions, in all, 16-byte reads of shared memory come later than EARLY before their use."""
    short = 0
    for at, instruction in enumerate(loop):
        read = READ.match(instruction)
        if read is None:
            continue
        got = {int(read[1]) + i for i in range(4)}
        for after in range(EARLY + 1):
            user = loop[(at + 1 + after) % len(loop)]
            if user.startswith(("FFMA", "STS")) and got & {int(r) for r in re.findall(r"R(\d+)", user)[1:]}:
                short += max(0, EARLY - after)
                break
    return short


def simt_forms() -> dict[str, dict[tuple[int, int], dict[str, int]]]:
    """Return the constants of simt's forms with whole tiles and no promotion, by tile ("256x128"), then by loads of A and B."""
    forms: dict[str, dict[tuple[int, int], dict[str, int]]] = {}
    for _, source, constants, _ in planning.forms():
        c = dict(constants)
        if source == SOURCE and not (c["SPLIT_K"] or c["STREAM_K"] or c["PROMOTE"]):
            forms.setdefault(f"{c['TILE_M']}x{c['TILE_N']}", {}).setdefault((c["A_LOAD"], c["B_LOAD"]), c)
    return forms


def main() -> int:
    forms = simt_forms()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tile", default=next(iter(forms)), choices=forms)
    parser.add_argument("--arch", default="sm_90a")
    asked = parser.parse_args()
    if shutil.which("nvdisasm") is None:
        print("sass.py: nvdisasm is not in the PATH; it comes with the CUDA toolkit", file=sys.stderr)
        return 2
    print(f"{asked.tile} tiles, {compiler.compiler_version()}, {asked.arch}")
    print("A B stream-K bias | cycles an FMA | late reads | instructions")
    for (a, b), stream, bias in itertools.product(forms[asked.tile], (0, 1), (0, 1)):
        constants = forms[asked.tile][a, b] | {"BIAS": bias, "ACTIVATION": 0, "STREAM_K": stream}
        code, _ = compiler.compile_cubin(SOURCE, tuple(constants.items()), asked.arch)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "simt.cubin")
            path.write_bytes(code)
            sass = subprocess.run(["nvdisasm", "-c", path], capture_output=True, text=True, check=True).stdout
        loop = main_loop(sass)
        cycles = bank_cycles(loop) / sum("FFMA" in x for x in loop)
        print(f"{a} {b} {stream:8} {bias:4} | {cycles:13.3f} | {late(loop):10} | {len(loop):12}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
