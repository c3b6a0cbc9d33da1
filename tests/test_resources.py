"""Registers, spills and shared memory of every compiled form, from ptxas, on machines without a GPU.

`resources.json` holds the registers of each form, for each version of NVRTC that was recorded (they differ by up to 40) and each
architecture; a form may take SLACK more. constraints.txt pins the version that CI has. After a change that is meant to cost
registers:

    python tests/test_resources.py --record
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest

from mm32 import plan as planning
from mm32.cuda import compile as compiler

RECORD = Path(__file__).with_name("resources.json")
COMPILER = ".".join(compiler.compiler_version().split()[1].split(".")[:2])  # of NVRTC, major.minor
SILENT = f"NVRTC {COMPILER} here reports no registers: -v made no report"
SLACK = 8  # registers: what they are handed out in
CARDS = {"sm_80": (8, 0), "sm_90a": (9, 0), "sm_100a": (10, 0)}
SMALLER = {"sm_86": 101376, "sm_89": 101376, "sm_120a": 101376}  # bytes of shared memory that a block may take
EVERYWHERE = "sm_90a"  # where all variants are compiled; elsewhere each form once, with its heaviest epilogue
REGISTERS_OF_A_BLOCK = 65536
STATIC_SHARED = 48 * 1024

Variant = tuple[str, str, tuple[tuple[str, int], ...], int]


def card(arch: str) -> planning.Card:
    return planning.Card(arch, CARDS[arch], 1, 232448)


def form(constants: tuple[tuple[str, int], ...]) -> str:
    """A variant's name without its epilogue: the constants' values, in their order."""
    return " ".join(f"{name}={value}" for name, value in constants if name not in ("BIAS", "ACTIVATION")) or "-"


def variants(kernel: str, arch: str) -> list[Variant]:
    listed = [v for v in planning.forms() if v[0] == kernel]
    if arch == EVERYWHERE:
        return listed
    heaviest: dict[tuple[str, str], tuple[tuple[int, bool], Variant]] = {}
    for variant in listed:
        constants = dict(variant[2])
        rank = (constants.get("BIAS", 0), constants.get("ACTIVATION", 0) == 4)  # gelu_tanh, the longest
        heaviest[variant[1], form(variant[2])] = max(
            (rank, variant), heaviest.get((variant[1], form(variant[2])), ((-1, False), variant))
        )
    return [variant for _, variant in heaviest.values()]


class Unreported(Exception):
    """This NVRTC compiled and said nothing of what it made."""


def measure(source: str, constants: planning.Constants, arch: str) -> dict[str, int] | None:
    """What ptxas -v says: the most that an entry of this source takes. None where it says nothing of any entry, as some of
    NVRTC 13.0 do."""
    _, report = compiler.compile_cubin(source, constants, arch, verbose=True)
    entries = report.count("Compiling entry function")
    if entries == 0 and not re.search(r"Used \d+ registers|bytes stack frame", report):
        return None

    def most(pattern: str, always: bool = True) -> int:
        found = re.findall(pattern, report)
        assert len(found) == entries > 0 or not always, f"{pattern!r} is not said of each entry:\n{report}"
        return max(map(int, found), default=0)

    return {
        "registers": most(r"Used (\d+) registers"),
        "stack": most(r"(\d+) bytes stack frame"),
        "spill_stores": most(r"(\d+) bytes spill stores"),
        "spill_loads": most(r"(\d+) bytes spill loads"),
        "shared": most(r"(\d+) bytes smem", always=False),
        "local": most(r"(\d+) bytes lmem", always=False),
    }


Measured = list[tuple[Variant, dict[str, int]]]


def compiled(pool: ProcessPoolExecutor, kernel: str, arch: str) -> Measured:
    waiting: list[tuple[Variant, Future]] = [
        (v, pool.submit(measure, v[1], v[2], arch)) for v in variants(kernel, arch)
    ]
    return reported([(variant, future.result()) for variant, future in waiting])


def reported(measured: list[tuple[Variant, dict[str, int] | None]]) -> Measured:
    """All of them, if all were reported; `Unreported` if none was. A report of some is a fault."""
    silent = [variant for variant, used in measured if used is None]
    if measured and len(silent) == len(measured):
        raise Unreported(f"NVRTC {COMPILER} reports no registers")
    assert silent == [], f"{len(silent)} of {len(measured)} forms were not reported, the first: {silent[0]}"
    return [(variant, used) for variant, used in measured if used is not None]


@pytest.fixture(scope="module")
def measured() -> Iterator[Callable[[str, str], Measured]]:
    """All of a kernel's forms for an architecture, compiled once for the tests below; skips what cannot run there."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:

        @functools.cache
        def of(kernel: str, arch: str) -> Measured | None:
            try:
                return compiled(pool, kernel, arch)
            except Unreported:
                return None

        def supported(kernel: str, arch: str) -> Measured:
            why = planning.unsupported(kernel, card(arch))
            if why is not None:
                pytest.skip(why)
            forms = of(kernel, arch)
            if forms is None:
                pytest.skip(SILENT)
            return forms

        yield supported


@pytest.mark.parametrize("arch", CARDS)
@pytest.mark.parametrize("kernel", planning.KERNELS)
def test_registers_and_shared_memory(kernel: str, arch: str, measured: Callable[[str, str], Measured]) -> None:
    forms = measured(kernel, arch)
    recorded = json.loads(RECORD.read_text())
    budgets = recorded.get(COMPILER, {}).get(arch, {}).get(kernel, {})
    wrong, seen = [], set()
    for (_, source, constants, threads), used in forms:
        name = f"{source} {form(constants)}"
        seen.add(name)
        faults = []
        if COMPILER not in recorded:
            pass  # what must fit and must not spill holds with any compiler
        elif name not in budgets:
            faults.append("no record: run python tests/test_resources.py --record")
        elif used["registers"] > budgets[name] + SLACK:
            faults.append(f"{used['registers']} registers, {budgets[name]} recorded")
        if -(-used["registers"] // 8) * 8 * threads > REGISTERS_OF_A_BLOCK:
            faults.append(f"{used['registers']} registers for {threads} threads: no block fits")
        if used["shared"] > STATIC_SHARED:
            faults.append(f"{used['shared']} bytes of static shared memory")
        wrong += [f"{source} for {arch} with {dict(constants)}: {fault}" for fault in faults]
    assert wrong == []
    if COMPILER not in recorded:
        pytest.skip(f"no registers are recorded for NVRTC {COMPILER}, but for {', '.join(recorded)}")
    assert seen == set(budgets), (
        "the record has forms that no longer exist: run python tests/test_resources.py --record"
    )


def test_a_report_of_some_forms_is_a_fault() -> None:
    one, two = planning.forms(), {"registers": 1}
    first, second = next(one), next(one)
    assert reported([(first, two), (second, two)]) == [(first, two), (second, two)]
    with pytest.raises(Unreported):
        reported([(first, None), (second, None)])
    with pytest.raises(AssertionError, match="1 of 2 forms were not reported"):
        reported([(first, None), (second, two)])


def spills(forms: Measured, arch: str) -> list[str]:
    """Forms with local memory: spilled registers, or an array that the compiler could not keep in registers."""
    return [
        f"{source} for {arch} with {dict(constants)}: {used[key]} bytes {key}"
        for (_, source, constants, _), used in forms
        for key in ("stack", "spill_stores", "spill_loads", "local")
        if used[key]
    ]


def held(fault: str) -> bool:
    """pack.cu has 64 registers, so that it fits beside a multiply, and what splits in one 96: some forms spill up to 12 of
    them, those that read A 4 bytes at a time for one product up to 20, which are read again up to 45 times. NVRTC 13.5 spills one
    register of simt's smallest tile where A comes 4 bytes at a time along K and B 16, and no other of its forms."""
    one_form = "'A_LOAD': 3, 'B_LOAD': 2, 'C_VECTOR': 1, 'SPLIT_K': 0, 'STREAM_K': 0, 'TILE_M': 64"
    if fault.startswith("fma/simt.cu ") and one_form in fault:
        return int(fault.rsplit(": ", 1)[1].split()[0]) <= 8
    scattered = "'PRODUCTS': 1" in fault and "'A_LOAD': 3" in fault
    spilled = int(fault.rsplit(": ", 1)[1].split()[0])
    return fault.startswith("emulated/pack.cu ") or (
        "'INLINE_PACK': 1" in fault and spilled <= (180 if scattered else 48)
    )


@pytest.mark.parametrize("arch", CARDS)
@pytest.mark.parametrize("kernel", planning.KERNELS)
def test_nothing_spills(kernel: str, arch: str, measured: Callable[[str, str], Measured]) -> None:
    wrong = spills(measured(kernel, arch), arch)
    assert [fault for fault in wrong if not held(fault)] == []
    if wrong:
        pytest.xfail(
            f"pack.cu, the splitting of direct forms and a form of simt.cu, held to few registers, spill a little: {len(wrong)}"
        )


@pytest.mark.parametrize("arch", SMALLER)
def test_smaller_cards_have_room(arch: str) -> None:
    """One form of every source compiles for cards that no registers are recorded of, and all of mma.cu's tiles fit."""
    forms = {(v[1], dict(v[2]).get("TILE_N"), dict(v[2]).get("PRODUCTS")): v for v in variants("mma", "sm_80")}
    forms |= {(v[1],): v for kernel in ("naive", "dot", "tiled", "simt") for v in variants(kernel, "sm_80")}
    try:
        measured = reported([(variant, measure(variant[1], variant[2], arch)) for variant in forms.values()])
    except Unreported:
        pytest.skip(SILENT)
    assert [fault for fault in spills(measured, arch) if not fault.startswith("emulated/pack.cu ")] == []
    static = {form(v[2]): used["shared"] for v, used in measured if v[1] == "emulated/mma.cu"}
    assert len(static) == len(planning.emulated.MMA_TILES)
    for tile in planning.emulated.MMA_TILES:
        (of_tile,) = (x for name, x in static.items() if f"PRODUCTS={tile.products} TILE_N={tile.n} " in name)
        assert tile.shared + of_tile <= SMALLER[arch]


@pytest.mark.xfail(
    reason="the planner's counts are of NVRTC 13.0, which the H200 was measured with; 13.5 takes more registers"
)
@pytest.mark.parametrize("arch", CARDS)
def test_as_many_blocks_fit_as_the_planner_counts(arch: str) -> None:
    """The simt tiles' `blocks` on a multiprocessor, by the registers on record."""
    wrong = []
    for tile in planning.fma.SIMT_TILES:
        for name, registers in json.loads(RECORD.read_text())[COMPILER][arch]["simt"].items():
            if f"TILE_M={tile.m} TILE_N={tile.n} TILE_K={tile.k} " in name:
                fitting = REGISTERS_OF_A_BLOCK // (-(-registers // 8) * 8 * tile.threads)
                wrong += [f"{name}: {registers} registers, {fitting} fit"] if fitting < tile.blocks else []
    assert wrong == []


def record() -> None:
    """Rewrites this compiler's part of resources.json: for each form, the most registers that one of its epilogues takes."""
    made: dict[str, dict[str, dict[str, int]]] = {}
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for arch in CARDS:
            for kernel in planning.KERNELS:
                if planning.unsupported(kernel, card(arch)) is None:
                    forms = made.setdefault(arch, {}).setdefault(kernel, {})
                    for (_, source, constants, _), used in compiled(pool, kernel, arch):
                        name = f"{source} {form(constants)}"
                        forms[name] = max(forms.get(name, 0), used["registers"])
    recorded = json.loads(RECORD.read_text()) | {COMPILER: made}
    RECORD.write_text(json.dumps(recorded, indent=1) + "\n")
    print(f"wrote {RECORD}, NVRTC {COMPILER}")


if __name__ == "__main__":
    if sys.argv[1:] != ["--record"]:
        sys.exit("usage: python tests/test_resources.py --record")
    record()
