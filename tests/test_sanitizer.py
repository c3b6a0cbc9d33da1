"""Every kernel under NVIDIA's compute-sanitizer: accesses out of bounds and leaks, races in shared memory, reads of memory that
was never written, barriers that not all threads reach. Slow: 10 to 100 times a plain run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mm32
from mm32.plan import KERNELS

pytestmark = [pytest.mark.gpu, pytest.mark.sanitizer, pytest.mark.timeout(1200)]

# initcheck, racecheck and synccheck watch mm32's kernels only: torch's own may read what they have not written.
ONLY_OURS = ("--kernel-name", "kernel_substring=mm32_")
TOOLS = {
    "memcheck": (
        "--report-api-errors",
        "no",
    ),  # torch probes the driver with calls that may fail; ours raise LaunchError
    "racecheck": ("--racecheck-report", "all", *ONLY_OURS),
    "initcheck": ONLY_OURS,
    "synccheck": ONLY_OURS,
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_sanitizer(kernel: str, tool: str) -> None:
    root = Path(mm32.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), os.environ.get("PYTHONPATH", "")))}
    # With torch's allocator a read past one tensor would hit the next; without it, each tensor is its own allocation.
    environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    case = Path(__file__).parent / "support" / "sanitizer_case.py"
    command = [
        "compute-sanitizer",
        "--tool",
        tool,
        *TOOLS[tool],
        "--error-exitcode",
        "99",
        sys.executable,
        str(case),
        kernel,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-8000:]
    summary = re.findall(r"(?:ERROR SUMMARY: (\d+) errors?|RACECHECK SUMMARY: (\d+) hazards?)", output)
    assert summary, f"compute-sanitizer gave no summary:\n{output[-8000:]}"
    assert all(int(errors or hazards) == 0 for errors, hazards in summary), output[-8000:]
