"""What mm32 finds on this machine: versions, cards, compilers, cache, and what is missing with the command that installs it.

`collect` never raises, whatever is broken: each item is found on its own, and one that fails is shown with its error. Only
the standard library is imported at the top, so that it also works where torch cannot be imported.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

CLI_PARTS = ("typer", "rich", "ninja", "psutil", "setuptools")


def collect() -> dict[str, Any]:
    """The report, ready for JSON: "versions" and "compilers" by name, "devices" a list, "cache", "settings" (the environment
    variables that mm32 reads, None if not set), "missing" (what, and how to get it). What is not there is None;
    what could not be found out is the text "failed: " and the error."""
    versions: dict[str, str | None] = {
        "mm32": _probe(_mm32),
        "Python": platform.python_version(),
        "torch": _probe(_torch),
        "torch's CUDA": _probe(_torch_cuda),
        "cuda-core": _package("cuda-core"),
        "cuda-bindings": _package("cuda-bindings"),
        "NVRTC": _probe(_nvrtc),
        "driver": _probe(_driver),
    }
    compilers = {name: _probe(partial(_compiler, name)) for name in ("nvcc", "ninja", "c++")}
    compilers["Python.h"] = _probe(_python_headers)
    return {
        "versions": versions,
        "platform": _probe(platform.platform),
        "devices": _probe(_devices),
        "compilers": compilers,
        "cache": _probe(_cache),
        "settings": _probe(_settings),
        "missing": _probe(lambda: _missing(versions, compilers)),
    }


def text(report: dict[str, Any]) -> str:
    """The report as a page."""
    lines = [f"{name:<14} {version or 'not found'}" for name, version in report["versions"].items()]
    lines.append(f"{'platform':<14} {report['platform']}")
    devices = report["devices"]
    if isinstance(devices, str) or not devices:
        lines.append(f"{'devices':<14} {devices or 'none'}")
    else:
        for number, d in enumerate(devices):
            lines.append(
                f"{f'cuda:{number}':<14} {d['name']}, compute capability {d['capability']}, "
                f"{d['memory'] / 2**30:.0f} GiB, {d['multiprocessors']} multiprocessors"
            )
    lines += [f"{name:<14} {found or 'not found'}" for name, found in report["compilers"].items()]
    cache = report["cache"]
    if isinstance(cache, dict):
        can = "writable" if cache["writable"] else "NOT writable: kernels are compiled in every process"
        cache = f"{cache['folder']}: {cache['entries']} entries, {cache['bytes']} bytes, {can}"
    lines.append(f"{'cache':<14} {cache}")
    settings = report["settings"]
    if isinstance(settings, str):
        lines.append(f"{'settings':<14} {settings}")
    else:
        lines += [f"{name:<14} {value or 'not set'}" for name, value in settings.items()]
    missing = report["missing"]
    if isinstance(missing, str):
        lines.append(f"{'missing':<14} {missing}")
    else:
        lines += [f"{'missing':<14} {m['what']}: {m['get']}" for m in missing]
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------------------
# One function for each item. `_probe` turns an exception into a text.


def _probe(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return f"failed: {type(error).__name__}: {str(error).strip() or 'no message'}"


def _package(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"


def _mm32() -> str:
    import mm32

    broken = mm32._failure
    return mm32.__version__ + (f" (cannot be used: {type(broken).__name__}: {broken})" if broken else "")


def _torch() -> str:
    import torch

    return str(torch.__version__)


def _torch_cuda() -> str | None:
    import torch

    return torch.version.cuda or "none: a build of torch for the CPU"


def _nvrtc() -> str | None:
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        return None
    status, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}" if int(status) == 0 else f"failed: {status!r}"


def driver_version() -> str | None:
    """The NVIDIA driver's version, from the kernel module; None where there is none."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"(\d+\.\d+(?:\.\d+)?)", text)
    return found[1] if found else None


def _driver() -> str | None:
    """The driver's version and the highest CUDA version that it supports, from the driver's own library."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    status = driver.cuDriverGetVersion(ctypes.byref(number))
    up_to = (
        f"CUDA {number.value // 1000}.{number.value % 1000 // 10}" if status == 0 else f"cuDriverGetVersion: {status}"
    )
    version = driver_version()
    return f"{version} ({up_to})" if version else up_to


def _devices() -> list[dict[str, Any]]:
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(index)
        found.append(
            {
                "name": p.name,
                "capability": f"{p.major}.{p.minor}",
                "memory": p.total_memory,
                "multiprocessors": p.multi_processor_count,
            }
        )
    return found


def _compiler(name: str) -> str | None:
    path = shutil.which(name)
    if path is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    said = (done.stdout + done.stderr).strip()
    if done.returncode != 0:
        return f"{path} (failed: --version returned {done.returncode}: {said[:200]})"
    release = re.search(r"release [\d.]+, V([\d.]+)", said)
    return f"{path} ({release[1] if release else (said.splitlines() or ['no version'])[0]})"


def _python_headers() -> str | None:
    """The path of Python.h, which extensions of this Python are built with; None if it is missing."""
    path = Path(sysconfig.get_path("include"), "Python.h")
    return str(path) if path.is_file() else None


def _cache() -> dict[str, Any]:
    from mm32.cuda import compile as compiler

    folder = compiler.cache_dir()
    entries = compiler.entries()
    there = folder
    while not there.exists() and there != there.parent:  # the folder is made by the first write
        there = there.parent
    return {
        "folder": str(folder),
        "entries": len(entries),
        "bytes": sum(e.bytes for e in entries),
        "writable": _writable(there),
    }


def _writable(folder: Path) -> bool:
    """Return whether a file can be created in a folder, by creating one without a name: os.access is true for root, even in
    /proc."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _settings() -> dict[str, str | None]:
    from mm32.settings import SETTINGS

    return {s.name: s.unknown or s.text or None for s in SETTINGS}


def _missing(versions: dict[str, str | None], compilers: dict[str, str | None]) -> list[dict[str, str]]:
    from mm32.install import pip_install

    def absent(value: str | None) -> bool:
        return value is None or value.startswith("failed")

    built_for = re.match(r"\d+", versions["torch's CUDA"] or "")
    major = "12" if built_for and built_for[0] == "12" else "13"
    found = []
    if absent(versions["torch"]):
        found.append({"what": "a torch that can be imported", "get": "pip install 'torch>=2.9'"})
    needed = [name for name in ("cuda-core", "cuda-bindings", "NVRTC") if absent(versions[name])]
    if needed:
        found.append({"what": f"{', '.join(needed)}, to run kernels", "get": pip_install(f"cu{major}")})
    elif built_for and (versions["NVRTC"] or "").split(".")[0] != built_for[0]:
        what = "NVRTC of the CUDA version that torch was built with"
        found.append({"what": what, "get": pip_install(f"cu{major}")})
    parts = [name for name in CLI_PARTS if _package(name) is None]
    if parts:
        found.append({"what": f"{', '.join(parts)}, for the command line", "get": pip_install("cli")})
    for what, names, get in (
        (
            "C++",
            ("c++", "Python.h"),
            "your system's C++ compiler and headers of Python (Debian: apt install g++ python3-dev)",
        ),
        ("CUDA", ("nvcc",), "a CUDA toolkit, where there is a GPU"),
    ):
        needed = [name for name in names if absent(compilers[name])]
        if needed:
            purpose = f"to build scripts with {what} in load_inline (mm32's own kernels do without)"
            found.append({"what": f"{' and '.join(needed)}, {purpose}", "get": get})
    return found
