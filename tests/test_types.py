"""What a strict type checker sees of mm32: the names of options, and the types of results."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import mm32
from mm32 import activations, gemm, options
from mm32.plan import KERNELS
from mm32.verify.timing.stage import BASELINES

ACCEPTED = """
import torch
import mm32
from mm32.export import export
from mm32.options import Kernel

a = torch.ones(2, 3)
c: torch.Tensor = mm32.matmul(a, a.T, activation="relu", precision="ieee", kernel="simt")
c = mm32.linear(a, mm32.pack(a.T, side="right", precision="tf32"), activation=None)
layer: torch.nn.Module = mm32.nn.Linear(3, 4, activation="gelu_tanh")
mm32.enable("tf32")
with mm32.enabled(None):
    pages = [mm32.explain(a, a.T), export("tt", m=64, n=64, k=64, kernel="tiled")]
taken: int = mm32.stats().taken


def by(kernel: Kernel) -> torch.Tensor:
    return mm32.matmul(a, a.T, kernel=kernel)
"""

REFUSED = """
mm32.matmul(a, a.T, activation="swish")
mm32.matmul(a, a.T, precision="fp16")
mm32.linear(a, a, kernel="fast")
mm32.explain(a, a.T, activation="Relu")
mm32.pack(a, side="top")
mm32.nn.Linear(3, 4, activation="swish")
mm32.enable("fp64")
mm32.enabled("fp64")
export("xt", m=64, n=64, k=64)
"""


def test_the_types_are_those_of_the_tables() -> None:
    assert get_args(options.Activation) == activations.names()
    assert get_args(options.Precision) == gemm.PRECISIONS
    assert get_args(options.Kernel) == ("auto", *KERNELS)
    assert get_args(options.Layout) == gemm.LAYOUTS
    assert get_args(options.Side) == gemm.SIDES
    assert get_args(options.Baseline) == BASELINES


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mypy", path=Path(sys.executable).parent) is None, reason="mypy is not installed")
def test_mypy_accepts_what_exists_and_names_what_does_not(tmp_path: Path) -> None:
    """mypy checks a program that uses the package, which it finds by MYPYPATH."""
    program = tmp_path / "program.py"
    program.write_text(ACCEPTED + REFUSED)
    source = Path(mm32.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", program],
        cwd=tmp_path,
        env={"MYPYPATH": str(source), "PATH": ""},
        capture_output=True,
        text=True,
    )
    refused = REFUSED.strip().splitlines()
    first = len(ACCEPTED.splitlines()) + 2
    lines = [int(n) for n in re.findall(r"^program\.py:(\d+): error: .*\[arg-type\]$", done.stdout, flags=re.M)]
    assert lines == list(range(first, first + len(refused))), done.stdout + done.stderr
    assert f"Found {len(refused)} errors in 1 file" in done.stdout
