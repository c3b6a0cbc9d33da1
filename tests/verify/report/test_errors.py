"""Errors name their cause: where an output is, how much of it there is, which values go wrong."""

from __future__ import annotations

import math
import subprocess
import sys

import torch

from mm32.install import pip_install
from mm32.verify import Verdict
from mm32.verify.judging.bounds import Truth
from mm32.verify.judging.judge import judge
from mm32.verify.worker.main import MAX_LEAVES
from support.verify.fixtures import Run, forward


def test_without_psutil_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['psutil'] = None; import mm32.verify; mm32.verify.verify"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"ImportError: mm32.verify.verify needs psutil, which is not installed: {pip_install('cli')}" in done.stderr


def test_an_output_on_meta(run: Run) -> None:
    report = run(forward("return torch.empty(64, 96, device='meta')"), trials=1)
    assert report.verdict is Verdict.DIFFERENT
    assert report.reason == "the output is on ['meta'], the reference's on cpu"


def test_too_many_entries(run: Run) -> None:
    report = run(forward("return [torch.relu(A.T @ B.T)] + [1.0] * 200_000"), trials=1)
    assert report.verdict is Verdict.CRASHED
    assert f"200001 tensors and numbers in one output, where at most {MAX_LEAVES} can be judged" in report.reason


def test_infinities_that_become_nan() -> None:
    right = torch.tensor([1.0, math.inf, -math.inf, math.nan])
    got = torch.tensor([1.0, math.nan, math.nan, math.nan])
    truth = Truth("output", right, right.double())
    assert "split or compensated sums without a guard for Inf" in judge(got, [truth]).reason
    got = torch.tensor([math.nan, math.inf, -math.inf, math.nan])
    said = judge(got, [truth]).reason
    assert "are NaN where the reference's are not" in said
    assert "guard" not in said
