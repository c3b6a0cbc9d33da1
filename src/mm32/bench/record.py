"""Records: JSON files of measurements, with the card, the versions and a hash of what was measured, kernels or mm32.verify."""

from __future__ import annotations

import datetime
import functools
import hashlib
import io
import json
import re
import tokenize
from pathlib import Path
from typing import Any

from mm32.collect_env import driver_version
from mm32.cuda import compile as compiler

SCHEMA = 1
METHOD = (
    "interleaved rounds, cold L2, medians of CUDA events; errors against float64 on the same inputs, "
    "of `judged_rows` rows of the result"
)
SOURCES = {
    "naive": ("fma/naive.cu",),
    "dot": ("fma/dot.cu",),
    "tiled": ("fma/tiled.cu",),
    "simt": ("fma/simt.cu", "fma/fixup.cu", "fma/narrow.cu", "common/reduce.cu"),
    "mma": ("emulated/pack.cu", "emulated/mma.cu", "common/reduce.cu", "emulated/fallback.cu"),
    "direct": ("emulated/direct.cu",),
    "tensorcore": ("emulated/pack.cu", "emulated/tensorcore.cu", "common/reduce.cu", "emulated/fallback.cu"),
}

# The names of the records that hold verdicts of mm32.verify.
VERDICTS = ("batch", "corpus", "exports", "kernelbench", "power")
VERIFY = Path(__file__).parents[1] / "verify"
# The files of that folder that only word or draw an outcome; verify_hash leaves them out.
TOLD = ("html/", "page.py", "judging/diagnosis.py", "judging/picture.py")


@functools.cache
def kernel_hash(kernel: str) -> str:
    """Return the hash of a kernel's sources with all they include. A change of comments or line breaks makes no record old."""
    digest = hashlib.sha256()
    for source in SOURCES[kernel]:
        digest.update(f"{compiler.tokens(compiler.full_source(source))}\0".encode())
    return digest.hexdigest()[:16]


def verify_hash() -> str:
    """Return the hash of those sources of mm32.verify that decide verdicts and take time. A change of comments, of docstrings, or
    of what only words or draws an outcome makes no record old."""
    digest = hashlib.sha256()
    for path in sorted(VERIFY.rglob("*.py")):
        if f"{path.relative_to(VERIFY)}".startswith(TOLD):
            continue
        digest.update(f"{path.relative_to(VERIFY)}\0{without_comments(path.read_text())}\0".encode())
    return digest.hexdigest()[:16]


@functools.lru_cache(1024)  # each record is compared with the same sources
def without_comments(source: str) -> str:
    """Return a Python source without its comments, docstrings, other bare strings, and blank lines."""
    lines = source.splitlines(keepends=True)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type != tokenize.NL]
    dropped = [token for token in tokens if token.type == tokenize.COMMENT]
    tokens = [token for token in tokens if token.type != tokenize.COMMENT]
    begins = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for before, token, after in zip([None, *tokens], tokens, tokens[1:], strict=False):
        first = before is None or before.type in begins
        if token.type == tokenize.STRING and first and after.type == tokenize.NEWLINE:
            dropped.append(token)
    for token in sorted(dropped, key=lambda token: token.start, reverse=True):
        (first_row, begin), (last_row, end) = token.start, token.end
        lines[first_row - 1 : last_row] = [lines[first_row - 1][:begin] + lines[last_row - 1][end:]]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def folder_of_card() -> str:
    """Return the name of the folder for the current CUDA device's records, which is the device's name, such as nvidia-h200."""
    import torch

    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")


def environment() -> dict[str, Any]:
    """Return the card, driver and versions of a run. On a CPU, whose records are not kept, the card is the processor."""
    import torch

    import mm32

    if not torch.cuda.is_available():
        from mm32.verify.machine import processor

        return {"card": processor(), "driver": "none", "torch": torch.__version__, "mm32": mm32.__version__}
    from cuda.bindings import driver

    _, version = driver.cuDriverGetVersion()
    return {
        "card": torch.cuda.get_device_name(),
        "driver_cuda": f"{version // 1000}.{version % 1000 // 10}",
        "driver": driver_version() or "unknown",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "compiler": compiler.compiler_version(),
        "mm32": mm32.__version__,
        "device": _device(torch.cuda.current_device()),
    }


def _device(index: int) -> dict[str, Any]:
    """Return what a roofline needs: capability, multiprocessors, their highest clock in Hz, and the memory's bytes a second (two
    transfers a clock). A value is None if the driver does not report it."""
    import torch
    from cuda.bindings import driver

    def attribute(name: str) -> int | None:
        kind = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        status, value = driver.cuDeviceGetAttribute(kind, index)
        return int(value) if int(status) == 0 and value > 0 else None

    p = torch.cuda.get_device_properties(index)
    clock, memory_clock = attribute("CLOCK_RATE"), attribute("MEMORY_CLOCK_RATE")  # kHz
    width = attribute("GLOBAL_MEMORY_BUS_WIDTH")  # bits
    return {
        "capability": f"{p.major}.{p.minor}",
        "multiprocessors": p.multi_processor_count,
        "clock": clock and clock * 1000,
        "memory_rate": memory_clock and width and 2 * memory_clock * 1000 * width // 8,
    }


def make(name: str, rows: list[dict[str, Any]], method: str = METHOD, sensor: str | None = None) -> dict[str, Any]:
    """Return the record of `rows` (see `measure.measure`) that were measured on torch's current card. The result in a row has its
    "kernel", its "kernels" if it is of several products, or neither. `sensor`: what read clock and power, or "none: " and why."""
    results = [result for row in rows for result in row["results"].values()]
    kernels = sorted({k for r in results for k in r.get("kernels", [r.get("kernel")])} & set(SOURCES))
    return {
        "schema": SCHEMA,
        "name": name,
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "environment": environment(),
        "kernels": {kernel: kernel_hash(kernel) for kernel in kernels},
        **({"verify": verify_hash()} if name in VERDICTS else {}),
        "method": method,
        **({} if sensor is None else {"sensor": sensor}),
        "rows": rows,
    }


def write(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")


def read(path: Path) -> dict[str, Any]:
    """Return a record written by `write`. Raises ValueError for any other file, and for a record of another schema."""
    try:
        record = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not a record, which mm32 bench --json writes: {error}") from error
    if not isinstance(record, dict) or "schema" not in record:
        raise ValueError(f"{path} is not a record, which mm32 bench --json writes: it names no schema")
    if record["schema"] != SCHEMA:
        raise ValueError(f"{path}: record schema {record['schema']}, this version reads {SCHEMA}: run it again")
    return record


def to_go_on_with(path: Path) -> dict[str, Any]:
    """Return the record at `path`, for a run that measures the rest; empty if there is none. Raises ValueError if it is of
    another card, of other versions or of older kernels, because its rows must not stand in one table with new ones."""
    if not path.exists():
        return {}
    record = read(path)
    if record["environment"] != environment() or stale(record):
        raise ValueError(f"{path} is of another card, other versions or older kernels: remove it, and measure all")
    return record


def stale(record: dict[str, Any]) -> list[str]:
    """Return the kernels that have changed since the record was made. In a record of verdicts, "verify" is among them if
    mm32.verify has changed, or if the record does not say which version made it."""
    old = [kernel for kernel, was in record["kernels"].items() if kernel not in SOURCES or kernel_hash(kernel) != was]
    return old + ["verify"] * (record["name"] in VERDICTS and record.get("verify") != verify_hash())
