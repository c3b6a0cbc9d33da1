"""Cubins that come with the package: those of the usual forms, for every architecture that a wheel is built for.

A wheel has them in the folder cubins/, made by `make cubins` (benchmarks/prebuild.py); a checkout has none unless that was
run. They are found by the hash of all that decides what they compute, as in the cache on disk (compile.py), except the version
of the compiler: NVRTC is not even loaded if one is found. A cubin of other sources than today's is never found.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

from mm32.cuda import compile as compiler
from mm32.cuda.compile import Constants

FOLDER = Path(__file__).with_name("cubins")
ANY_COMPILER = "any compiler"

log = logging.getLogger("mm32")


def path(source: str, constants: Constants, arch: str) -> Path:
    """Return where the cubin of a form is, if it came with the package."""
    return FOLDER / f"{compiler.key(source, constants, arch, ANY_COMPILER)}.cubin"


def find(source: str, constants: Constants, arch: str) -> bytes | None:
    """Return the cubin of a form that came with the package, None if none did or its file is damaged."""
    at = path(source, constants, arch)
    try:
        code = zlib.decompress(compiler.unpack(at.read_bytes())[0])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, zlib.error) as error:
        log.info("the cubin %s that came with mm32 is not usable (%s): compiling", at, error)
        return None
    log.debug("came with mm32: %s", at)
    return code


def keep(source: str, constants: Constants, arch: str) -> Path:
    """Compile a form and keep it in the folder, compressed. Raises `CompileError`, and OSError if it cannot be written."""
    at = path(source, constants, arch)
    code, _ = compiler.compile_cubin(source, constants, arch)
    data = compiler.pack(zlib.compress(code, 9), compiler.header(source, constants, arch, compiler.compiler_version()))
    compiler.write(at, data)
    return at


def there() -> bool:
    """Return whether any cubins came with the package."""
    return FOLDER.is_dir() and any(FOLDER.glob("*.cubin"))


def entries() -> list[compiler.Entry]:
    """Return the cubins that came with the package, sorted by architecture and kernel."""
    found = compiler.entries(FOLDER)
    return sorted(found, key=lambda entry: (entry.arch, entry.kernel, entry.constants))
