"""What a reason says of exceptions that honest scripts raise under `mm32 verify` alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm32.verify import Verdict, verify
from mm32.verify.hints import NO_REFERENCE, hint

GRAD = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
FILE = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
MODULE = "ModuleNotFoundError: No module named '{}'"


@pytest.mark.parametrize("role", ["reference", "candidate", "control"])
@pytest.mark.parametrize(
    ("of", "message", "expected"),
    [
        ("RuntimeError", GRAD, "forward is called under torch.no_grad()"),
        (
            "RuntimeError",
            "RuntimeError: One of the differentiated Tensors does not require grad",
            "torch.enable_grad()",
        ),
        ("FileNotFoundError", FILE.format("table.pt"), "os.path.dirname(__file__)"),
        ("ValueError", "ValueError: batch_sizes should always be on CPU. Instances of", "pack them in forward"),
        ("FileNotFoundError", FILE.format("/nowhere/table.pt"), ""),
        ("ValueError", GRAD, ""),
        ("RuntimeError", "RuntimeError: shapes do not match", ""),
        ("", "", ""),
    ],
)
def test_a_hint_by_type_and_message(role: str, of: str, message: str, expected: str) -> None:
    found = hint(of, message, role, "reference")
    assert expected in found
    assert bool(expected) == bool(found)


def test_only_a_candidate_is_told_that_the_reference_is_hidden() -> None:
    assert hint("ModuleNotFoundError", MODULE.format("gemm_ref"), "candidate", "gemm_ref") == NO_REFERENCE
    assert (
        hint("ImportError", "cannot import name 'Model' from 'gemm_ref' (x)", "candidate", "gemm_ref") == NO_REFERENCE
    )
    assert not hint("ModuleNotFoundError", MODULE.format("cutlass"), "candidate", "gemm_ref")
    assert not hint("ModuleNotFoundError", MODULE.format("gemm_ref"), "reference", "gemm_ref")


SCRIPT = """
import torch
{imports}

class {name}(torch.nn.Module):
    def forward(self, x):
        return {output}

def get_inputs():
    return [torch.rand(4, 4)]
"""
FINE = {"imports": "", "output": "x * 2"}


@pytest.mark.parametrize(
    ("reference", "candidate", "verdict", "said"),
    [
        (
            {"output": "torch.autograd.grad((x * 2).sum(), x)[0]"},
            {},
            Verdict.REFERENCE_FAILED,
            "(forward is called under",
        ),
        ({}, {"output": "torch.autograd.grad((x * 2).sum(), x)[0]"}, Verdict.CRASHED, "(forward is called under"),
        ({}, {"imports": "open('table.txt')"}, Verdict.NOT_BUILT, "'table.txt' (scripts run in an empty folder"),
        ({}, {"imports": "from gemm_ref import Model"}, Verdict.NOT_BUILT, f"'gemm_ref' ({NO_REFERENCE})"),
    ],
)
def test_the_reason_ends_with_the_hint(
    reference: dict[str, str], candidate: dict[str, str], verdict: Verdict, said: str, tmp_path: Path
) -> None:
    paths = tmp_path / "gemm_ref.py", tmp_path / "candidate.py"
    for path, name, changes in zip(paths, ("Model", "ModelNew"), (reference, candidate), strict=True):
        path.write_text(SCRIPT.format(name=name, **(FINE | changes)))
    report = verify(*paths, trials=1)
    assert report.verdict is verdict
    assert said in report.reason
    assert report.error["hint"] in report.reason
