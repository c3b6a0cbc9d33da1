"""Registers, spills and shared memory of every compiled form, on machines without a GPU.

For each recorded NVRTC, each form and each architecture, `resources.json` has a digest of all that decides the machine code, and
what the cubin takes (cubins.py). A form whose digest is unchanged needs no compiler: `make test` compiles the forms that changed
and a sample of the others, which must come out as recorded; `make test-all` compiles the rest. A changed form may take SLACK more
registers than were recorded, and no more of anything else. After a change that is meant to cost more, run

    make budgets

It records what is missing or changed, for the NVRTC of constraints.txt and for the H200's; look at the difference. To record one
NVRTC alone: `[MM32_TEST_NVRTC=FOLDER] python tests/test_resources.py --record`, where FOLDER is where pip has put another NVRTC.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import random
import re
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from mm32 import activations
from mm32 import plan as planning
from mm32.cuda import compile as compiler
from support import cubins
from support.cubins import Usage

# ---------------------------------------------------------------------------------------------------------------------
# What the tests take from the planner

FORMS = tuple(planning.forms())
SIMT_TILES, MMA_TILES = planning.fma.SIMT_TILES, planning.emulated.MMA_TILES
SIMT, FIXUP, NARROW = "fma/simt.cu", "fma/fixup.cu", "fma/narrow.cu"
MMA, PACK, FALLBACK = "emulated/mma.cu", "emulated/pack.cu", "emulated/fallback.cu"
INLINE = "INLINE_PACK"  # the constant of tensorcore forms that pack their own operands
BLOCKS = "BLOCKS_PER_SM"  # the constant that says how many blocks must fit on a multiprocessor
HEAVIEST = activations.number("gelu_tanh")


def runs_on(kernel: str, arch: str) -> bool:
    card = planning.Card(arch, capability=ARCHS[arch], sms=1, shared_memory=SHARED[arch])
    return planning.unsupported(kernel, card) is None


# ---------------------------------------------------------------------------------------------------------------------

RECORD = Path(__file__).with_name("resources.json")
REMEDY = "make budgets"
ARCHS = {
    "sm_80": (8, 0),
    "sm_86": (8, 6),
    "sm_89": (8, 9),
    "sm_90a": (9, 0),
    "sm_100a": (10, 0),
    "sm_120a": (12, 0),
}
# The most bytes of shared memory that a block may take.
SHARED = {"sm_80": 166912, "sm_86": 101376, "sm_89": 101376, "sm_90a": 232448, "sm_100a": 232448, "sm_120a": 101376}
EVERYWHERE = "sm_90a"  # all forms are compiled for this, but for other architectures only with their heaviest epilogue
SAMPLED = 3  # of so many pairs of source and architecture, one has an unchanged form compiled
SLACK = 8  # registers that a changed form may take beyond its record: the unit in which registers are allocated
REGISTERS_OF_A_BLOCK = 65536
STATIC_SHARED = 48 * 1024
MEASURED_WITH = "13.0"  # the NVRTC of the H200's records, on which the planner's counts of blocks are based


class Form(NamedTuple):
    source: str
    constants: tuple[tuple[str, int], ...]
    threads: int

    @property
    def name(self) -> str:
        return " ".join([self.source, *(f"{name}={value}" for name, value in self.constants)])


@functools.cache
def forms(arch: str) -> tuple[Form, ...]:
    """Return the forms that are compiled for an architecture."""
    listed = [Form(*rest) for kernel, *rest in FORMS if runs_on(kernel, arch)]
    if arch == EVERYWHERE:
        return tuple(listed)
    heaviest: dict[tuple[str, tuple[tuple[str, int], ...]], tuple[tuple[int, bool], Form]] = {}
    for form in listed:
        constants = dict(form.constants)
        rank = (constants.pop("BIAS", 0), constants.pop("ACTIVATION", 0) == HEAVIEST)
        place = form.source, tuple(constants.items())
        if place not in heaviest or rank > heaviest[place][0]:
            heaviest[place] = rank, form
    return tuple(form for _, form in heaviest.values())


# ---------------------------------------------------------------------------------------------------------------------
# The compiler, and what it makes


@functools.cache
def compiler_version() -> str:
    """Return the version of the loaded NVRTC. $MM32_TEST_NVRTC may be a folder with another one than the environment's."""
    folder = os.environ.get("MM32_TEST_NVRTC")
    if folder:
        for name in ("libnvrtc-builtins.so.*.*", "libnvrtc.so.*"):  # the second opens the first by its bare name
            (library,) = (path for path in Path(folder).rglob(name) if ".alt." not in path.name)
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    found = importlib.metadata.distributions(**({"path": [folder]} if folder else {}))
    full = (d.version for d in found if re.fullmatch(r"nvidia.cuda.nvrtc(-cu1\d)?", d.metadata["Name"] or ""))
    return next((version for version in full if version.startswith(f"{major}.{minor}.")), f"{major}.{minor}")


VERSION = compiler_version()
COMPILER = ".".join(VERSION.split(".")[:2])


@functools.cache
def code(source: str) -> str:
    """Return a source and its headers as the compiler sees them."""
    return compiler.tokens(compiler.full_source(source))


def digest(form: Form, arch: str, version: str) -> str:
    """Return a digest of all that decides a form's machine code. `version`: the compiler's, major.minor."""
    parts = (code(form.source), compiler.definitions(form.constants), arch, compiler.OPTIONS, version)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


@functools.cache
def measure(form: Form, arch: str) -> Usage:
    return cubins.most(compiler.compile_cubin(form.source, form.constants, arch)[0], ARCHS[arch])


def measured(asked: Iterable[tuple[Form, str]]) -> Iterator[tuple[Form, str, Usage]]:
    """Compile forms and yield what they take. As many processes are used as there are cores for each test process, since threads
    share a lock of NVRTC's."""
    asked = list(asked)
    count = min(len(asked), (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    if count <= 1:
        yield from ((form, arch, measure(form, arch)) for form, arch in asked)
        return
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [(form, arch, pool.submit(measure, form, arch)) for form, arch in asked]
        yield from ((form, arch, future.result()) for form, arch, future in waiting)


# ---------------------------------------------------------------------------------------------------------------------
# The record


class Entry(NamedTuple):
    digest: str
    used: Usage


Entries = dict[tuple[str, str], Entry]  # by a form's name and architecture


@functools.cache
def record() -> dict[str, dict]:
    """Return {compiler's version, major.minor: {"nvrtc": whole version, "forms": {name: {arch: [digest, *Usage]}}}}."""
    return json.loads(RECORD.read_text())


@functools.cache
def recorded(version: str) -> Entries:
    made = record().get(version, {"forms": {}})["forms"].items()
    return {(name, arch): Entry(of[0], Usage(*of[1:])) for name, archs in made for arch, of in archs.items()}


@functools.cache
def unchanged(arch: str, version: str) -> tuple[Form, ...]:
    """Return the forms that have not changed since they were recorded."""
    entries = recorded(version)
    return tuple(
        form
        for form in forms(arch)
        if (form.name, arch) in entries and entries[form.name, arch].digest == digest(form, arch, version)
    )


def sampled(arch: str, source: str) -> list[Form]:
    """Return a list of one unchanged form that is compiled nevertheless, or of none. Each record has another sample."""
    same = [form for form in unchanged(arch, COMPILER) if form.source == source]
    chosen = random.Random(zlib.crc32(RECORD.read_bytes() + f"{arch} {source}".encode()))
    return chosen.sample(same, 1) if same and chosen.randrange(SAMPLED) == 0 else []


def fits(form: Form, used: Usage) -> list[str]:
    """Return the faults of a form that must not occur with any compiler: a block could not start."""
    faults = []
    if -(-used.registers // 8) * 8 * form.threads > REGISTERS_OF_A_BLOCK:
        faults.append(f"{used.registers} registers for {form.threads} threads: no block fits")
    if used.shared > STATIC_SHARED:
        faults.append(f"{used.shared} bytes of static shared memory")
    return faults


def exceeds(used: Usage, budget: Usage, slack: int) -> list[str]:
    """Return what a form takes beyond its record. Without slack it must take exactly what was recorded."""
    if slack == 0:
        return [] if used == budget else [f"{used} is not what was recorded, {budget}"]
    over = [used.registers > budget.registers + slack, *(u > b for u, b in zip(used[1:], budget[1:], strict=True))]
    return [
        f"{getattr(used, name)} {name}, {getattr(budget, name)} recorded"
        for name, more in zip(Usage._fields, over, strict=True)
        if more
    ]


def faults(form: Form, arch: str, used: Usage) -> list[str]:
    """Return the faults of a form that was just compiled here."""
    found = fits(form, used)
    entry = recorded(COMPILER).get((form.name, arch))
    if entry is not None:
        exact = entry.digest == digest(form, arch, COMPILER) and record()[COMPILER]["nvrtc"] == VERSION
        found += exceeds(used, entry.used, 0 if exact else SLACK)
    elif COMPILER in record():
        found.append(f"no record: {REMEDY}")
    else:  # a compiler without a record may spill SLACK registers more than those with one
        others = [recorded(version)[form.name, arch] for version in record() if (form.name, arch) in recorded(version)]
        stack = max((entry.used.stack for entry in others), default=0)
        found += [f"{used.stack} bytes of stack, {stack} with any other"] if used.stack > stack + 4 * SLACK else []
    return [f"{form.name} for {arch}: {fault}" for fault in found]


PLACES = [(arch, source) for arch in ARCHS for source in dict.fromkeys(form.source for form in forms(arch))]


def known() -> bool:
    return COMPILER in record()


# ---------------------------------------------------------------------------------------------------------------------
# Compiled here


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("arch", "source"), PLACES)
def test_changed_forms_and_a_sample_keep_their_budgets(arch: str, source: str) -> None:
    same = set(unchanged(arch, COMPILER))
    listed = [form for form in forms(arch) if form.source == source]
    # Without a record of this compiler, only the first form of each source is compiled; make test-all compiles the others.
    asked = [form for form in listed if form not in same] if known() else listed[:1]
    assert asked or same, f"nothing of {source} is known for {arch}"
    asked += sampled(arch, source)
    assert [fault for made in measured((form, arch) for form in asked) for fault in faults(*made)] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("arch", "source"), PLACES)
def test_every_form_keeps_its_budget(arch: str, source: str) -> None:
    asked = ((form, arch) for form in forms(arch) if form.source == source)
    assert [fault for made in measured(asked) for fault in faults(*made)] == []


# ---------------------------------------------------------------------------------------------------------------------
# What the record says


def test_the_record_has_every_form_and_no_other() -> None:
    wanted = {(form.name, arch) for arch in ARCHS for form in forms(arch)}
    if not known():
        pytest.skip(f"nothing is recorded of NVRTC {COMPILER}, but of {', '.join(record())}")
    found = set(recorded(COMPILER))
    assert (sorted(wanted - found), sorted(found - wanted)) == ([], []), f"the record has other forms: {REMEDY}"


def test_what_was_recorded_before_a_change_is_said() -> None:
    """There is a warning for each compiler, because forms that changed since its record are held to old figures, and are compiled
    here, if at all, by one compiler only."""
    every = [(form, arch) for arch in ARCHS for form in forms(arch)]
    for version in record():
        old = len(every) - sum(len(unchanged(arch, version)) for arch in ARCHS)
        if old:
            warnings.warn(f"{old} of {len(every)} forms changed since NVRTC {version}'s record: {REMEDY}", stacklevel=1)
    assert MEASURED_WITH in record(), REMEDY


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("version", record())
def test_a_block_of_every_form_fits(version: str, arch: str) -> None:
    entries = recorded(version)
    found = [
        f"{form.name}: {fault}"
        for form in unchanged(arch, version)
        for fault in fits(form, entries[form.name, arch].used)
    ]
    assert found == []


def most_stack(form: Form, arch: str) -> int:
    """Return the most bytes of stack that a record may have for a form.

    - pack.cu has 64 registers, so that it fits beside a multiply. So has mm32_scale: NVRTC 13.0 keeps its loads of rows that are
      read whole, after the samples, on the stack before sm_90 and on sm_100a.
    - Code that packs inside a multiply has 96 registers, and the multiply's warps that decide which tier computes the product
      have 48.
    - NVRTC 13.0 gives fixup.cu no more than 64 registers on sm_120a.
    - Functions of fallback.cu that are not inlined save registers, and NVRTC 13.5 keeps an array of one of them in memory on
      sm_100a and sm_120a.
    - A form of which three or more blocks run on a multiprocessor has 168 registers or fewer.
    - Forms of narrow.cu of which two blocks run on a multiprocessor have 128 registers; some lack a few, and were the fastest
      all the same.
    - Other forms may lack two registers."""
    constants = dict(form.constants)
    if form.source in (PACK, FALLBACK, FIXUP):
        return {
            PACK: 144 if arch in ("sm_80", "sm_86", "sm_89", "sm_100a") else 128,
            FALLBACK: 1200 if arch in ("sm_100a", "sm_120a") else 112,
            FIXUP: 16,
        }[form.source]
    if INLINE in constants:
        return 192 if constants[INLINE] else 128
    if form.source == NARROW:
        return 40 if constants[BLOCKS] == 2 else 8
    return 24 if constants.get(BLOCKS, 1) >= 3 else 8


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("version", record())
def test_only_forms_held_to_few_registers_spill(version: str, arch: str) -> None:
    """The recorded bytes are the budget; this test limits what may be recorded."""
    entries = recorded(version)
    stacks = {form: entries[form.name, arch].used.stack for form in unchanged(arch, version)}
    assert {form.name: stack for form, stack in stacks.items() if stack > most_stack(form, arch)} == {}
    moved = {form: entries[form.name, arch].used for form in stacks if stacks[form] == 0}
    assert [form.name for form, used in moved.items() if used.loads or used.stores] == []


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("version", record())
def test_as_many_blocks_fit_as_the_planner_counts(version: str, arch: str) -> None:
    """By the recorded registers, as many blocks fit on a multiprocessor, for every form that is compiled for a number of
    them."""
    entries, wrong = recorded(version), []
    for form in unchanged(arch, version):
        if (blocks := dict(form.constants).get(BLOCKS)) is not None:
            registers = entries[form.name, arch].used.registers
            fitting = REGISTERS_OF_A_BLOCK // (-(-registers // 8) * 8 * form.threads)
            wrong += [f"{form.name}: {registers} registers, {fitting} fit"] if fitting < blocks else []
    assert wrong == []


def test_simt_is_compiled_for_the_blocks_that_the_planner_counts() -> None:
    for tile in SIMT_TILES:
        shape = {"TILE_M": tile.m, "TILE_N": tile.n, "TILE_K": tile.k, "PROMOTE": tile.promote}.items()
        of_tile = [dict(form.constants) for form in forms(EVERYWHERE) if form.source == SIMT]
        assert {constants[BLOCKS] for constants in of_tile if shape <= constants.items()} == {tile.blocks}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("version", record())
def test_mma_tiles_fit_in_shared_memory(version: str, arch: str) -> None:
    """Static and dynamic shared memory together fit, also on the smallest cards."""
    entries = recorded(version)
    for tile in MMA_TILES:
        chosen = {"PRODUCTS": tile.products, "TILE_N": tile.n}.items()
        of_tile = [f for f in unchanged(arch, version) if f.source == MMA and chosen <= dict(f.constants).items()]
        assert all(tile.shared + entries[f.name, arch].used.shared <= SHARED[arch] for f in of_tile)


# ---------------------------------------------------------------------------------------------------------------------
# The measure itself


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("source", [PACK, SIMT])
def test_a_cubin_says_what_ptxas_says(source: str, arch: str) -> None:
    """They agree wherever -v makes a report at all."""
    form = next(form for form in forms(arch) if form.source == source)
    elf, report = compiler.compile_cubin(form.source, form.constants, arch, verbose=True)
    entries = re.split(r"Compiling entry function '(\w+)'", report)[1:]
    if not entries:
        pytest.skip(f"NVRTC {COMPILER} here makes no report")

    def said(pattern: str, text: str) -> int:
        found = re.findall(rf"(\d+) {pattern}", text)
        return int(found[0]) if found else 0

    def in_all(pattern: str, text: str) -> int:
        """Return the sum over the entry and the functions that it calls, which follow it: a cubin has them in one section."""
        return sum(map(int, re.findall(rf"(\d+) {pattern}", text)))

    wanted = {
        name: Usage(
            int(re.findall(r"Used (\d+) registers", text)[0]),
            said("bytes stack frame", text),
            in_all("bytes spill stores", text),
            in_all("bytes spill loads", text),
            said("bytes smem", text),
        )
        for name, text in zip(entries[::2], entries[1::2], strict=True)
    }
    assert cubins.entries(elf, ARCHS[arch]) == wanted
    assert cubins.most(elf, ARCHS[arch]) == Usage(*map(max, zip(*wanted.values(), strict=True)))


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ValueError, match="not a little-endian ELF file"):
        cubins.entries(b"MZ" + bytes(100), (8, 0))


def test_more_than_recorded_is_a_fault() -> None:
    budget = Usage(64, 8, 8, 12, 1024)
    assert exceeds(Usage(72, 8, 8, 12, 1024), budget, SLACK) == []
    assert exceeds(Usage(60, 0, 0, 0, 0), budget, SLACK) == []
    assert exceeds(Usage(73, 12, 8, 16, 1024), budget, SLACK) == [
        "73 registers, 64 recorded", "12 stack, 8 recorded", "16 loads, 12 recorded",
    ]  # fmt: skip
    assert exceeds(Usage(63, 8, 8, 12, 1024), budget, 0) != []
    form = Form("a.cu", (), 512)
    assert fits(form, Usage(128, 0, 0, 0, STATIC_SHARED)) == []
    assert len(fits(form, Usage(129, 0, 0, 0, STATIC_SHARED + 1))) == 2


def test_a_digest_is_of_the_code_and_not_of_its_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another constant, character of code, architecture or compiler gives another digest; other comments do not."""
    form, texts = Form("a.cu", (("BIAS", 0),), 32), {"a.cu": "int x;  // one\n\n// two\nint y;\n"}
    monkeypatch.setattr(compiler, "full_source", texts.get)

    def of(form: Form, arch: str = "sm_80", version: str = "13.0") -> str:
        code.cache_clear()
        return digest(form, arch, version)

    first = of(form)
    others = [of(form, "sm_86"), of(form, version="13.5"), of(form._replace(constants=(("BIAS", 1),)))]
    texts["a.cu"] = "int x;\n// other words\nint y;\n"
    assert of(form) == first
    texts["a.cu"] = "int x;\nint z;\n"
    others.append(of(form))
    code.cache_clear()
    assert len({first, *others}) == 5


# ---------------------------------------------------------------------------------------------------------------------


def write_record() -> None:
    """Write this compiler's part of resources.json, with a line for each form; only missing or changed forms are compiled."""
    kept = recorded(COMPILER) if record().get(COMPILER, {}).get("nvrtc") == VERSION else {}
    same = {(form.name, arch) for arch in ARCHS for form in unchanged(arch, COMPILER)} & set(kept)
    every = [(form, arch) for arch in ARCHS for form in forms(arch)]
    made = {place: entry.used for place, entry in kept.items() if place in same}
    asked = [(form, arch) for form, arch in every if (form.name, arch) not in same]
    for number, (form, arch, used) in enumerate(measured(asked), 1):
        made[form.name, arch] = used
        print(f"\r{number} of {len(asked)} forms, NVRTC {VERSION}", end="", file=sys.stderr, flush=True)
    of_compiler: dict[str, dict[str, list]] = {}
    for form, arch in every:
        of_compiler.setdefault(form.name, {})[arch] = [digest(form, arch, COMPILER), *made[form.name, arch]]
    whole = {**record(), COMPILER: {"nvrtc": VERSION, "forms": of_compiler}}
    parts = []
    for version in sorted(whole):
        lines = ",\n".join(f"   {json.dumps(name)}: {json.dumps(of)}" for name, of in whole[version]["forms"].items())
        parts.append(
            f' "{version}": {{\n  "nvrtc": {json.dumps(whole[version]["nvrtc"])},\n  "forms": {{\n{lines}\n  }}\n }}'
        )
    RECORD.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    spilling = [(name, arch) for name, archs in of_compiler.items() for arch, of in archs.items() if of[2]]
    print(f"\n{RECORD.name}: NVRTC {VERSION}, {len(asked)} of {len(every)} forms compiled, {len(spilling)} spill")


if __name__ == "__main__":
    if sys.argv[1:] != ["--record"]:
        sys.exit("usage: [MM32_TEST_NVRTC=FOLDER] python tests/test_resources.py --record")
    write_record()
