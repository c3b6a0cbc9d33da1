"""Records: JSON files that back a figure, with the card, the versions and the hash of the kernels they speak of."""

from __future__ import annotations

import datetime
import hashlib
import json
from pathlib import Path
from typing import Any

from mm32.cuda import compile as compiler
from mm32.environment import driver_version

SCHEMA = 1
METHOD = "interleaved rounds, cold L2, medians of CUDA events; errors against float64 on the same inputs"
SOURCES = {
    "naive": ("naive.cu",),
    "dot": ("dot.cu",),
    "tiled": ("tiled.cu",),
    "simt": ("simt.cu",),
    "mma": ("pack.cu", "mma.cu", "reduce.cu", "simt.cu"),
    "tensorcore": ("pack.cu", "tensorcore.cu", "reduce.cu", "simt.cu"),
}


def kernel_hash(kernel: str) -> str:
    """The hash of a kernel's sources with all they include."""
    digest = hashlib.sha256()
    for source in SOURCES[kernel]:
        digest.update(compiler.full_source(source).encode() + b"\0")
    return digest.hexdigest()[:16]


def environment() -> dict[str, Any]:
    """Card, driver and versions of a run."""
    import torch
    from cuda.bindings import driver

    import mm32

    _, version = driver.cuDriverGetVersion()
    return {
        "card": torch.cuda.get_device_name(),
        "driver_cuda": f"{version // 1000}.{version % 1000 // 10}",
        "driver": driver_version() or "unknown",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "compiler": compiler.compiler_version(),
        "mm32": mm32.__version__,
    }


def write(path: Path, name: str, rows: list[dict[str, Any]], method: str = METHOD) -> None:
    """A row's result names its "kernel", or, where it is of many products, its "kernels", or none."""
    results = [result for row in rows for result in row["results"].values()]
    kernels = sorted({k for r in results for k in r.get("kernels", [r.get("kernel")])} & set(SOURCES))
    record = {
        "schema": SCHEMA,
        "name": name,
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "environment": environment(),
        "kernels": {kernel: kernel_hash(kernel) for kernel in kernels},
        "method": method,
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")


def read(path: Path) -> dict[str, Any]:
    record = json.loads(path.read_text())
    if record.get("schema") != SCHEMA:
        raise ValueError(f"{path}: record schema {record.get('schema')}, this version reads {SCHEMA}: run it again")
    return record


def stale(record: dict[str, Any]) -> list[str]:
    """The kernels that have changed since the record was made."""
    return [kernel for kernel, was in record["kernels"].items() if kernel not in SOURCES or kernel_hash(kernel) != was]
