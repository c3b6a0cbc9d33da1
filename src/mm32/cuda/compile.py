"""Kernel source + constants -> cubin, by NVRTC through cuda-core, kept in a cache on disk.

An entry's name is the hash of all that decides its bytes: the source with its includes, the constants, the architecture, the
options and the compiler's version. An entry is written to a temporary name and renamed, so that readers see all of it or
nothing; it carries a checksum, and one that does not match is compiled again. A folder that cannot be written costs time,
never a result.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import re
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mm32 import settings
from mm32.errors import CompileError
from mm32.install import pip_install

KERNEL_DIR = Path(__file__).parent / "kernels"
STANDARD = "c++17"
OPTIONS = (f"std={STANDARD}",)  # hashed with the source
MAGIC = b"mm32cubin1\n"
INSTALL = f"{pip_install('cu13')} (or cu12, to match torch's CUDA)"

log = logging.getLogger("mm32")

Constants = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Entry:
    """One cached cubin, as `mm32 cache list` shows it."""

    path: Path
    bytes: int
    kernel: str
    arch: str
    constants: str
    compiler: str


def cache_dir() -> Path:
    """Where cubins are kept: $MM32_CACHE_DIR, or mm32/cubins in the user's cache folder ($XDG_CACHE_HOME or ~/.cache)."""
    if named := settings.CACHE_DIR.text:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mm32" / "cubins"


def definitions(constants: Constants) -> str:
    """Return the constants as the lines that stand before the source."""
    return "".join(f"#define MM32_{name} {value}\n" for name, value in constants)


@functools.cache
def full_source(source: str) -> str:
    """Return a kernel's text with its own headers in place of their #include lines, each once. Names are paths in KERNEL_DIR.

    "Once" is decided by the text: a header that two branches of an #if include appears only in the first.
    """
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (KERNEL_DIR / name).read_text()
        text = re.sub(r"^#pragma once\n", "", text, flags=re.M)
        return re.sub(r'^#include "([\w./]+)"\n', lambda m: expand(m[1]), text, flags=re.M)

    return expand(source)


TOKEN = re.compile(
    r"""
    "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'     # a string, a character: "//" in them begins no comment
    | //(?:\\\n|[^\n])* | /\*.*?\*/               # comments
    | \\\n | \n[ \t]*\# | \n                       # a line that goes on; one for the preprocessor; any other line's end
    | [\w.]+ | [-+*%&|^<>=!:]+ | [ \t]+ | .         # words and numbers, operators, spaces, all else by itself
    """,
    re.S | re.X,
)


def tokens(text: str) -> str:
    """Return a kernel's text without what does not change the code: comments, line breaks, indentation. Tokens are one space
    apart. Lines for the preprocessor stay lines. In them, two spaces stand for any number of spaces, to tell `#define F(x)` from
    `#define F (x)`. Raw strings are not recognised."""
    kept: list[str] = []
    directive = gap = False
    for token in TOKEN.findall(f"\n{text}"):
        if token.startswith("\n"):
            begins = token.endswith("#")
            if (directive or begins) and kept[-1:] != ["\n"]:
                kept.append("\n")
            kept += ["#"] * begins
            directive, gap = begins, False
        elif token.isspace() or token.startswith(("//", "/*", "\\\n")):
            gap = directive
        else:
            kept += [""] * (gap and kept[-1] != "#") + [token]
            gap = False
    return " ".join(kept).rstrip()


@functools.cache
def _package() -> importlib.metadata.Distribution | None:
    """Return the package that holds NVRTC, if exactly one does."""
    found = []
    for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu13"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(importlib.metadata.distribution(name))
    return found[0] if len(found) == 1 else None


def _named(package: importlib.metadata.Distribution) -> str:
    return f"{package.metadata['Name']} {package.version}"


def _is_loaded(package: importlib.metadata.Distribution) -> bool:
    """Return whether this process has loaded this package's NVRTC."""
    for file in package.files or ():
        if file.name.startswith("libnvrtc.so"):
            with contextlib.suppress(OSError):  # not loaded
                ctypes.CDLL(str(file.locate()), mode=os.RTLD_NOLOAD)
                return True
    return False


@functools.cache
def expected_version() -> str | None:
    """Return `compiler_version` by the installed packages alone; None if they don't say. Loading the library takes 25 ms, which a
    process that finds its kernels in the cache does not need to spend. The library that is loaded may be another one, from a
    toolkit on the machine or from another package, so this is good for looking an entry up but not for naming one."""
    package = _package()
    return _named(package) if package else None


# Neither cuda-core nor the bindings' NVRTC can be used for the first time by several threads at once: of two threads that import
# cuda.core, the second finds it half initialised.
_loading = threading.RLock()


@functools.cache
def compiler_version() -> str:
    """Load the NVRTC that compiles here and return its version: its package's if that is known. Raises `CompileError` without
    NVRTC."""
    try:
        with _loading:
            from cuda.bindings import nvrtc

            _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise CompileError(f"compiling kernels needs cuda-core with NVRTC: {INSTALL} ({error})") from error
    package = _package()
    if package and package.version.startswith(f"{major}.{minor}.") and _is_loaded(package):
        return _named(package)
    return f"nvrtc {major}.{minor}"


def _cuda_core() -> tuple[Any, Any]:
    """Return what compiles in cuda-core: Program and ProgramOptions. Raises ImportError."""
    with _loading:
        from cuda.core import Program, ProgramOptions

        return Program, ProgramOptions


def key(source: str, constants: Constants, arch: str, version: str | None = None) -> str:
    """Return the name of an entry that the compiler of this version makes; by default the compiler that is used here."""
    parts = [full_source(source), definitions(constants), arch, *OPTIONS, version or compiler_version()]
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def compile_cubin(source: str, constants: Constants, arch: str, *, verbose: bool = False) -> tuple[bytes, str]:
    """Compile without the cache. Return the cubin and, with `verbose`, ptxas's report of registers, spills and memory.

    Raises `CompileError`, with the compiler's log, if the source does not compile or NVRTC is not there.
    """
    named = f"{source} for {arch} with {', '.join(f'{k}={v}' for k, v in constants)}"
    try:
        Program, ProgramOptions = _cuda_core()
    except ImportError as error:
        raise CompileError(f"compiling {named} needs cuda-core with NVRTC: {INSTALL} ({error})") from error
    import io

    report = io.StringIO()
    try:
        options = ProgramOptions(arch=arch, std=STANDARD, ptxas_options=["-v"] if verbose else None)
        program = Program(definitions(constants) + full_source(source), "c++", options)
        code = program.compile("cubin", logs=report).code
    except Exception as error:  # cuda-core raises several kinds; all of them mean the same here
        raise CompileError(f"compiling {named} failed:\n{error}") from error
    if not isinstance(code, bytes):
        raise CompileError(f"compiling {named}: expected a cubin's bytes, got {type(code).__name__}")
    return code, report.getvalue()


def header(source: str, constants: Constants, arch: str, version: str) -> dict[str, str]:
    """Return what an entry says about itself."""
    text = " ".join(f"{k}={v}" for k, v in constants)
    return {"kernel": source, "arch": arch, "constants": text, "compiler": version}


def pack(cubin: bytes, header: dict[str, str]) -> bytes:
    """Return an entry's bytes."""
    body = json.dumps(header, sort_keys=True).encode() + b"\n" + cubin
    return _sum(body) + body


def _sum(body: bytes) -> bytes:
    return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n"


def unpack(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Return the cubin and the header of an entry. Raises ValueError if it is not whole."""
    body = data[len(MAGIC) + 65 :]
    if not data.startswith(_sum(body)):
        raise ValueError("not a whole mm32 cubin: its checksum does not match")
    text, _, cubin = body.partition(b"\n")
    header = json.loads(text)
    if not isinstance(header, dict):
        raise ValueError(f"not an mm32 cubin: its header is a {type(header).__name__}, not a dict")
    return cubin, header


_warned: set[tuple[Path, int | None]] = set()


def _warn_once(folder: Path, error: OSError) -> None:
    """Warn once for each folder and reason: the error's own text may name a temporary file, which is new every time."""
    if (folder, error.errno) not in _warned:
        _warned.add((folder, error.errno))
        why = error.strerror or error
        log.warning("mm32's kernel cache %s cannot be written (%s); kernels are compiled in every process", folder, why)


def write(path: Path, data: bytes) -> None:
    """Put a whole entry in place. Raises OSError, and leaves nothing half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _read(path: Path) -> bytes | None:
    """Return the cubin of an entry, None if there is no whole one."""
    try:
        found = unpack(path.read_bytes())[0]
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.info("cache entry %s is not usable (%s): compiling again", path, error)
        return None
    log.debug("from the cache: %s", path)
    return found


def kept(source: str, constants: Constants, arch: str) -> bytes | None:
    """Return the compiled kernel if the cache has it from the compiler that is expected here, which is not loaded; else None."""
    expected = expected_version()
    return None if expected is None else _read(cache_dir() / f"{key(source, constants, arch, expected)}.cubin")


def cubin(source: str, constants: Constants, arch: str) -> bytes:
    """Return the compiled kernel, from the cache, or newly made and kept under the version of the compiler that made it."""
    folder, expected = cache_dir(), expected_version()
    if (found := kept(source, constants, arch)) is not None:
        return found
    version = compiler_version()
    path = folder / f"{key(source, constants, arch, version)}.cubin"
    if version != expected and (found := _read(path)) is not None:
        return found
    start = time.perf_counter()
    code, _ = compile_cubin(source, constants, arch)
    log.info("compiled %s for %s by %s in %.2f s", source, arch, version, time.perf_counter() - start)
    try:
        write(path, pack(code, header(source, constants, arch, version)))
    except OSError as error:
        _warn_once(folder, error)
    return code


def entries(folder: Path | None = None) -> list[Entry]:
    """Return the entries of a folder, by default the cache's, oldest first; entries that are not whole are left out."""
    found = []
    folder = cache_dir() if folder is None else folder
    for path in folder.glob("*.cubin") if folder.is_dir() else []:
        try:
            data, made = path.read_bytes(), path.stat().st_mtime
            _, about = unpack(data)
        except (OSError, ValueError):
            continue
        named = (about.get(name, "?") for name in ("kernel", "arch", "constants", "compiler"))
        found.append((made, Entry(path, len(data), *named)))
    return [entry for _, entry in sorted(found, key=lambda f: f[0])]


def clear() -> tuple[int, list[tuple[Path, str]]]:
    """Remove what the cache holds (and what a killed process left half written). Return the number of entries removed, and each
    path that could not be removed, with the reason."""
    folder = cache_dir()
    removed = 0
    kept: list[tuple[Path, str]] = []
    if not folder.is_dir():
        return removed, kept
    for path in [*folder.glob("*.cubin"), *folder.glob(".writing-*")]:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            kept.append((path, error.strerror or str(error)))
        else:
            removed += path.suffix == ".cubin"
    with contextlib.suppress(OSError):
        folder.rmdir()  # only if nothing else is in it
    return removed, kept
