"""Kernels compiled by NVRTC and kept on disk: what an entry's name depends on, and that nothing on disk can harm a result.

NVRTC needs no GPU, so all of this runs anywhere.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import mm32
from mm32.cuda import compile as compiler
from mm32.cuda import launch
from mm32.plan import packing, sources

SOURCE, CONSTANTS, ARCH = "fma/naive.cu", (("BIAS", 0), ("ACTIVATION", 0), ("ALONG_M", 0)), "sm_90a"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that does not exist yet."""
    folder = tmp_path / "some" / "cache"
    monkeypatch.setenv("MM32_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="module")
def right() -> bytes:
    return compiler.compile_cubin(SOURCE, CONSTANTS, ARCH)[0]


@pytest.fixture
def own_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the kernels that a test may change."""
    folder = tmp_path / "kernels"
    shutil.copytree(compiler.KERNEL_DIR, folder)
    monkeypatch.setattr(compiler, "KERNEL_DIR", folder)
    compiler.full_source.cache_clear()
    yield folder
    compiler.full_source.cache_clear()


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """The compilations from now on, one item each."""
    calls, real = [], compiler.compile_cubin

    def counted(source: str, constants: compiler.Constants, arch: str, **options: bool) -> tuple[bytes, str]:
        calls.append((source, constants, arch))
        return real(source, constants, arch, **options)

    monkeypatch.setattr(compiler, "compile_cubin", counted)
    return calls


def only_entry(folder: Path) -> Path:
    (path,) = folder.iterdir()
    assert path.suffix == ".cubin"
    return path


def run_python(program: str, folder: Path) -> subprocess.CompletedProcess:
    root = Path(mm32.__file__).parents[1]
    environment = {**os.environ, "MM32_CACHE_DIR": str(folder), "PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True
    )


# ---------------------------------------------------------------------------------------------------------------------
# Compiling


def test_a_cubin_is_an_elf_file_with_the_entry(right: bytes) -> None:
    assert right[:4] == b"\x7fELF"
    assert b"mm32_naive" in right


def test_the_same_source_gives_the_same_bytes(right: bytes) -> None:
    assert compiler.compile_cubin(SOURCE, CONSTANTS, ARCH)[0] == right


def test_verbose_reports_registers() -> None:
    _, report = compiler.compile_cubin(SOURCE, CONSTANTS, ARCH, verbose=True)
    if not report.strip():
        pytest.skip(f"{compiler.compiler_version()} here makes no report")
    assert "Used " in report
    assert "0 bytes spill stores" in report


def test_includes_are_in_the_source_once() -> None:
    text = compiler.full_source("fma/simt.cu")
    assert text.count("struct Problem {") == 1
    assert '#include "' not in text
    assert "#pragma once" not in text


def test_definitions_come_first() -> None:
    assert compiler.definitions((("A", 1), ("B", -2))) == "#define MM32_A 1\n#define MM32_B -2\n"


def check_layout(folder: Path, header: str, claims: dict[str, str]) -> None:
    """Compile a kernel that checks claims. Each claim's name is an instruction that does not exist, so the compilation fails
    unless the compiler finds the claim true and drops the instruction. A static_assert would not do: not every NVRTC has
    offsetof, and without it a field's offset is not a constant expression."""
    lines = "".join(f'    if (!({claim})) asm volatile("{name};");\n' for name, claim in claims.items())
    (folder / "layout.cu").write_text(
        f'#include "{header}"\nextern "C" __global__ void layout(const char* at) {{\n{lines}}}\n'
    )
    compiler.full_source.cache_clear()
    compiler.compile_cubin("layout.cu", (), ARCH)


@pytest.mark.parametrize("header", ["common/problem.cuh", "common/workspace.cuh"])
def test_arguments_are_laid_out_as_the_headers_say(header: str, own_kernels: Path) -> None:
    """The launcher's structures agree with the kernels', as the compiler lays them out: each field's offset, and the size."""
    structures = {"common/problem.cuh": ("Problem", "Matrix"), "common/workspace.cuh": ("Params",)}[header]
    claims = {}
    for name in structures:
        made = getattr(launch, f"_{name}")
        claims[f"wrong_size_of_{name}"] = f"sizeof({name}) == {ctypes.sizeof(made)}"
        for field, *_ in made._fields_:
            place = f"(const char*)&((const {name}*)at)->{field} - at"
            claims[f"wrong_place_of_{name}_{field}"] = f"{place} == {getattr(made, field).offset}"
    check_layout(own_kernels, header, claims)
    for name, claim in claims.items():  # each claim can fail, too
        with pytest.raises(mm32.CompileError, match=name):
            check_layout(own_kernels, header, {name: claim + " + 8"})


def test_the_workspace_has_room_for_what_the_kernels_keep_there(own_kernels: Path) -> None:
    claims = {
        "wrong_size_of_Decision": f"sizeof(Decision) == {packing.DECISION_BYTES}",
        "wrong_size_of_RowStats": f"sizeof(RowStats) == {sources.STATS_BYTES}",
    }
    check_layout(own_kernels, "emulated/stats.cuh", claims)
    for name, claim in claims.items():
        with pytest.raises(mm32.CompileError, match=name):
            check_layout(own_kernels, "emulated/stats.cuh", {name: claim + " + 8"})


def test_an_error_has_the_kernel_the_constants_and_the_log(cache: Path) -> None:
    with pytest.raises(mm32.CompileError) as error:
        compiler.cubin("fma/simt.cu", (("BIAS", 0), ("ACTIVATION", 0), ("A_LOAD", 0)), ARCH)
    message = str(error.value)
    assert "compiling fma/simt.cu for sm_90a with BIAS=0, ACTIVATION=0, A_LOAD=0 failed" in message
    assert 'identifier "MM32_TILE_M" is undefined' in message
    assert not cache.exists(), "a failure is not kept"


def test_an_unknown_architecture_is_a_compile_error(cache: Path) -> None:
    with pytest.raises(mm32.CompileError, match=r"fma/naive.cu for sm_12345 with BIAS=0"):
        compiler.cubin(SOURCE, CONSTANTS, "sm_12345")


def test_without_cuda_core_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(mm32.CompileError, match=r"pip install .*\[cu13\]'"):
        compiler.compile_cubin(SOURCE, CONSTANTS, ARCH)


def test_the_error_keeps_the_reason_of_a_failed_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason may be something else than a package that is not installed."""
    broken = types.ModuleType("cuda.core")
    monkeypatch.setitem(sys.modules, "cuda.core", broken)
    with pytest.raises(mm32.CompileError, match=r"pip install .*\(cannot import name 'Program' from 'cuda.core'"):
        compiler.compile_cubin(SOURCE, CONSTANTS, ARCH)


def test_threads_may_compile_first_at_once(cache: Path, tmp_path: Path) -> None:
    """While cuda.core is half imported, it has the `__spec__` of a complete module, so a second thread does not wait for the
    first one's import, and finds no Program. Here a package that stays in this state for longer stands in for it."""
    package = tmp_path / "cuda" / "core"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text(
        "import __main__, json, time, types\n"
        "__spec__ = json.__spec__\n"
        "__main__.half_made.set()\n"
        "time.sleep(0.5)\n"
        "class ProgramOptions:\n"
        "    def __init__(self, **options): pass\n"
        "class Program:\n"
        "    def __init__(self, *source): pass\n"
        "    def compile(self, *target, **options): return types.SimpleNamespace(code=b'compiled')\n"
    )
    program = f"""
        import sys, threading
        sys.path.insert(0, {str(tmp_path)!r})
        from mm32.cuda import compile as compiler

        half_made, said = threading.Event(), []

        def work():
            try:
                said.append(compiler.compile_cubin({SOURCE!r}, {CONSTANTS!r}, {ARCH!r})[0].decode())
            except Exception as error:
                said.append(repr(error))

        threads = [threading.Thread(target=work) for _ in range(2)]
        threads[0].start()
        half_made.wait()
        threads[1].start()
        for thread in threads: thread.join()
        print(said)
    """
    done = run_python(program, cache)
    assert done.stdout.strip() == str(["compiled"] * 2), done.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Names


def test_a_name_is_a_fixed_function_of_what_is_compiled() -> None:
    name = compiler.key(SOURCE, CONSTANTS, ARCH)
    assert name == compiler.key(SOURCE, CONSTANTS, ARCH)
    assert len(name) == 64
    others = {
        compiler.key("fma/dot.cu", CONSTANTS, ARCH),
        compiler.key(SOURCE, (("BIAS", 1), *CONSTANTS[1:]), ARCH),
        compiler.key(SOURCE, CONSTANTS[1:], ARCH),
        compiler.key(SOURCE, (("BIAS", 0), ("ACTIVATION", 0), ("ALONG_N", 0)), ARCH),
        compiler.key(SOURCE, CONSTANTS, "sm_90"),
        compiler.key(SOURCE, CONSTANTS, "sm_80"),
    }
    assert len(others | {name}) == 7


@pytest.mark.parametrize("file", ["fma/naive.cu", "common/epilogue.cuh", "common/problem.cuh"])
def test_a_name_changes_with_the_source_and_its_includes(own_kernels: Path, file: str) -> None:
    """problem.cuh is an include of an include: it comes in through epilogue.cuh."""
    before = compiler.key(SOURCE, CONSTANTS, ARCH)
    path = own_kernels / file
    path.write_text(path.read_text() + "\n// changed\n")
    compiler.full_source.cache_clear()
    assert compiler.key(SOURCE, CONSTANTS, ARCH) != before


def test_a_name_does_not_change_with_another_kernels_include(own_kernels: Path) -> None:
    before = compiler.key(SOURCE, CONSTANTS, ARCH)
    (own_kernels / "ptx/cp_async.cuh").write_text("// changed\n")
    compiler.full_source.cache_clear()
    assert compiler.key(SOURCE, CONSTANTS, ARCH) == before


def test_a_name_changes_with_the_compiler_and_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {compiler.key(SOURCE, CONSTANTS, ARCH)}
    monkeypatch.setattr(compiler, "compiler_version", lambda: "nvrtc 99.0")
    names.add(compiler.key(SOURCE, CONSTANTS, ARCH))
    monkeypatch.setattr(compiler, "OPTIONS", (*compiler.OPTIONS, "fmad=false"))
    names.add(compiler.key(SOURCE, CONSTANTS, ARCH))
    assert len(names) == 3


def test_the_compiler_has_a_version() -> None:
    assert any(c.isdigit() for c in compiler.compiler_version())


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the only installed package, which has the version of the loaded NVRTC and a library of its own."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    made = tmp_path / "nvidia_cuda_nvrtc-0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nvidia-cuda-nvrtc\nVersion: {major}.{minor}.999\n")
    (made / "RECORD").write_text("lib/libnvrtc.so.0,,\n")
    caches = compiler.expected_version, compiler.compiler_version
    monkeypatch.setattr(compiler, "_package", lambda: importlib.metadata.Distribution.at(made))
    for cached in caches:
        cached.cache_clear()
    yield tmp_path
    for cached in caches:
        cached.cache_clear()


def test_a_package_whose_library_is_not_loaded_names_no_entry(
    other_package: Path, cache: Path, compilations: list, right: bytes
) -> None:
    """Even with all of the package's metadata there, the name of an entry has the version of the library that compiles."""
    assert compiler.cubin(SOURCE, CONSTANTS, ARCH) == right
    assert compiler.cubin(SOURCE, CONSTANTS, ARCH) == right
    assert len(compilations) == 1
    (entry,) = compiler.entries()
    expected = compiler.expected_version()
    assert expected is not None
    assert expected.endswith(".999")
    assert entry.compiler == compiler.compiler_version() == f"nvrtc {expected.split()[1].removesuffix('.999')}"
    assert entry.path.name == compiler.key(SOURCE, CONSTANTS, ARCH) + ".cubin"


def test_without_nvrtc_the_error_says_what_to_install(
    other_package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(mm32.CompileError, match=r"pip install .*\[cu13\]'"):
        compiler.cubin(SOURCE, CONSTANTS, ARCH)


# ---------------------------------------------------------------------------------------------------------------------
# The cache


def test_the_second_call_reads(cache: Path, compilations: list, right: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiler.cubin(SOURCE, CONSTANTS, ARCH) == right
    assert compilations == [(SOURCE, CONSTANTS, ARCH)]
    assert only_entry(cache).name == compiler.key(SOURCE, CONSTANTS, ARCH) + ".cubin"

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "compile_cubin", refuse)
    assert compiler.cubin(SOURCE, CONSTANTS, ARCH) == right


def test_another_process_reads(cache: Path, right: bytes) -> None:
    compiler.cubin(SOURCE, CONSTANTS, ARCH)
    program = f"""
        import hashlib, sys
        from mm32.cuda import compile as compiler
        compiler.compile_cubin = None
        print(hashlib.sha256(compiler.cubin({SOURCE!r}, {CONSTANTS!r}, {ARCH!r})).hexdigest())
        print("cuda.bindings.nvrtc" in sys.modules)
    """
    done = run_python(program, cache)
    loads = compiler.expected_version() != compiler.compiler_version()
    assert done.stdout.split() == [hashlib.sha256(right).hexdigest(), str(loads)], done.stderr


DAMAGE = {
    "empty": lambda data: b"",
    "cut_in_the_magic": lambda data: data[:5],
    "cut_in_the_header": lambda data: data[:100],
    "cut_after_the_header": lambda data: data[: data.index(b"}\n") + 2],
    "cut_by_a_byte": lambda data: data[:-1],
    "longer_by_a_byte": lambda data: data + b"\0",
    "flipped_last": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "flipped_middle": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 128]) + data[len(data) // 2 + 1 :]
    ),
    "flipped_magic": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "other_file": lambda data: b"\x7fELF" + data[4:],
    "zeros": lambda data: bytes(len(data)),
    "flipped_sum": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    "flipped_header": lambda data: data.replace(b'"fma/naive.cu"', b'"naive.cv"'),
    "header_without_cubin": lambda data: data[: len(compiler.MAGIC) + 65] + b"{}\n",
    "header_is_not_a_dict": lambda data: compiler.pack(b"cubin", ["fma/naive.cu"]),
    "header_is_not_text": lambda data: compiler.MAGIC + b"\xff\xfe\xfa\n" + data,
    "twice": lambda data: data + data,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_compiled_again_and_repaired(
    damage: str, cache: Path, compilations: list, right: bytes
) -> None:
    compiler.cubin(SOURCE, CONSTANTS, ARCH)
    path = only_entry(cache)
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[damage](whole))
    assert compiler.entries() == []
    assert compiler.cubin(SOURCE, CONSTANTS, ARCH) == right
    assert len(compilations) == 2
    assert only_entry(cache).read_bytes() == whole
    assert compiler.cubin(SOURCE, CONSTANTS, ARCH) == right
    assert len(compilations) == 2


def test_an_entry_that_is_a_folder_costs_time_only(cache: Path, right: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (cache / f"{compiler.key(SOURCE, CONSTANTS, ARCH)}.cubin").mkdir(parents=True)
    assert compiler.cubin(SOURCE, CONSTANTS, ARCH) == right
    assert [p.suffix for p in cache.iterdir()] == [".cubin"], "the temporary file is gone"
    assert sum("cannot be written" in r.message for r in caplog.records) == 1


def test_a_folder_that_cannot_be_made_is_one_warning(
    cache: Path, right: bytes, compilations: list, caplog: pytest.LogCaptureFixture
) -> None:
    """A file is where the folder should be, which stops even root."""
    cache.parent.mkdir(parents=True)
    cache.write_text("a file")
    with caplog.at_level(logging.WARNING, logger="mm32"):
        for _ in range(3):
            assert compiler.cubin(SOURCE, CONSTANTS, ARCH) == right
    assert len(compilations) == 3
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert f"kernel cache {cache} cannot be written" in warnings[0]
    assert compiler.entries() == []
    assert compiler.clear() == (0, [])


@pytest.mark.parametrize("step", ["mkstemp", "fsync", "replace"])
def test_a_disk_that_refuses(
    step: str,
    cache: Path,
    right: bytes,
    compilations: list,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a disk that is read-only or full, each step of writing fails in turn. There must be no entry, no temporary file, one
    warning, and the right bytes."""

    def refuse(*_: object, **__: object) -> None:
        # The name of the file is another one each time.
        raise OSError(28, "No space left on device", f"{cache}/.writing-{len(compilations)}")

    monkeypatch.setattr(compiler.tempfile if step == "mkstemp" else compiler.os, step, refuse)
    with caplog.at_level(logging.WARNING, logger="mm32"):
        for _ in range(2):
            assert compiler.cubin(SOURCE, CONSTANTS, ARCH) == right
    assert len(compilations) == 2
    assert list(cache.iterdir()) == []
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        f"mm32's kernel cache {cache} cannot be written (No space left on device); kernels are compiled in every process"
    ]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_process_killed_while_writing_leaves_no_entry(step: str, cache: Path, right: bytes) -> None:
    program = f"""
        import os, signal
        from mm32.cuda import compile as compiler
        compiler.os.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        compiler.cubin({SOURCE!r}, {CONSTANTS!r}, {ARCH!r})
    """
    done = run_python(program, cache)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list(cache.glob("*.cubin")) == []
    assert len(list(cache.iterdir())) == 1, "the half-written file, under a name that is never read"
    assert compiler.entries() == []
    assert compiler.cubin(SOURCE, CONSTANTS, ARCH) == right
    assert len(compiler.entries()) == 1
    assert compiler.clear() == (1, [])
    assert not cache.exists(), "clear() takes the half-written file along"


def _compile_at_the_gate(gate: object, folder: str) -> str:
    os.environ["MM32_CACHE_DIR"] = folder
    gate.wait(120)
    return hashlib.sha256(compiler.cubin(SOURCE, CONSTANTS, ARCH)).hexdigest()


@pytest.mark.slow
def test_eight_processes_at_once(cache: Path, right: bytes) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(8, mp_context=context) as pool:
        gate = manager.Barrier(8)
        found = [f.result() for f in [pool.submit(_compile_at_the_gate, gate, str(cache)) for _ in range(8)]]
    assert set(found) == {hashlib.sha256(right).hexdigest()}
    assert compiler.unpack(only_entry(cache).read_bytes())[0] == right


# ---------------------------------------------------------------------------------------------------------------------
# Listing and clearing


def test_entries_and_clear(cache: Path) -> None:
    assert compiler.entries() == []
    assert compiler.clear() == (0, [])
    other = (("BIAS", 1), ("ACTIVATION", 7))
    compiler.cubin(SOURCE, CONSTANTS, ARCH)
    os.utime(only_entry(cache), (1, 1))
    compiler.cubin("fma/dot.cu", other, "sm_80")
    (cache / "notes.txt").write_text("not ours")
    first, second = compiler.entries()
    assert (first.kernel, first.arch, first.constants) == ("fma/naive.cu", "sm_90a", "BIAS=0 ACTIVATION=0 ALONG_M=0")
    assert (second.kernel, second.arch, second.constants) == ("fma/dot.cu", "sm_80", "BIAS=1 ACTIVATION=7")
    assert first.compiler == compiler.compiler_version()
    assert first.bytes == first.path.stat().st_size
    assert second.path.name == compiler.key("fma/dot.cu", other, "sm_80") + ".cubin"
    assert compiler.clear() == (2, [])
    assert [p.name for p in cache.iterdir()] == ["notes.txt"]
    assert compiler.entries() == []


def test_clear_goes_on_past_what_it_cannot_remove(cache: Path, right: bytes) -> None:
    (cache / "0.cubin").mkdir(parents=True)
    (cache / "z.cubin").mkdir()
    compiler.cubin(SOURCE, CONSTANTS, ARCH)
    removed, kept = compiler.clear()
    assert removed == 1
    assert sorted(kept) == [(cache / "0.cubin", "Is a directory"), (cache / "z.cubin", "Is a directory")]
    assert sorted(p.name for p in cache.iterdir()) == ["0.cubin", "z.cubin"]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MM32_CACHE_DIR", str(tmp_path / "named"))
    assert compiler.cache_dir() == tmp_path / "named"
    monkeypatch.delenv("MM32_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiler.cache_dir() == tmp_path / "mm32" / "cubins"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert compiler.cache_dir() == tmp_path / "home" / ".cache" / "mm32" / "cubins"


def test_tokens_are_those_of_the_code() -> None:
    code = """
#define TWO \\
  2  // of what

int f(int x) {  // how
  asm("// %0" : "+r"(x)); /* two
  lines */ return x - '/' * TWO;
}
"""
    same = """# define TWO 2
int f(int x)
{
    asm("// %0"
        : "+r"(x));
    return x -
           '/' * TWO;
}"""
    bare = '\n # define  TWO  2 \n int f ( int x ) { asm ( "// %0" : "+r" ( x ) ) ; return x - \'/\' * TWO ; }'
    assert compiler.tokens(code) == compiler.tokens(same) == bare
    for old, new in (
        ("%0", "%1"),
        ("x - ", "x-- - "),
        ("int x", "intx"),
        ("  2 ", "  3 "),
        ("// how", "x /"),
        ("/* two", ""),
    ):
        assert compiler.tokens(code.replace(old, new)) != bare, (old, new)
    for old, new in (("// how", "// else"), ("two", "2"), ("int x", "int  x"), ("asm(", "\n\nasm (")):
        assert compiler.tokens(code.replace(old, new)) == bare, (old, new)
    for one, other in (
        ("#if A\nb\n#endif", "#if A b\n#endif"),
        ("#define F(x) x", "#define F (x) x"),
        ("#if A  // b \\\n#endif\n#endif", "#if A\n#endif\n#endif"),
    ):
        assert compiler.tokens(one) != compiler.tokens(other)
    assert compiler.tokens("#if A\n\n#endif  // A\n") == compiler.tokens("  #  if   A\n  #endif")
