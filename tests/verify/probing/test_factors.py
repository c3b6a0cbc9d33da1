"""Models that factor matrices or solve with them, and answers that diverge: what is no fault of a candidate's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mm32.verify.inputs import contents
from mm32.verify.inputs.catalogue import EXPLODES
from mm32.verify.probing.prober import SINGULAR_RAISED
from support.verify import in_process

Compare = Callable[..., tuple[str, str, Any]]
HEAD = "import torch\nimport torch.nn as nn\n\n\n"


def script(name: str, forward: str) -> str:
    return f"{HEAD}class {name}(nn.Module):\n    def forward(self, x, y):\n        {forward}\n"


@pytest.fixture
def compared(tmp_path: Path) -> Compare:
    def go(reference: str, candidate: str, inputs: str, **options: Any) -> tuple[str, str, Any]:
        (tmp_path / "r.py").write_text(
            script("Model", reference) + f"\n\ndef get_inputs():\n    a = torch.randn(8, 24, 12)\n    return {inputs}\n"
        )
        (tmp_path / "c.py").write_text(script("ModelNew", candidate))
        return in_process.compare(tmp_path / "r.py", tmp_path / "c.py", **options)

    return go


def test_a_cholesky_factor_in_place_of_a_determinant(compared: Compare) -> None:
    """Data of probes, and mixed rows, make the matrices indefinite."""
    found, why, report = compared(
        "return torch.linalg.slogdet(y)[1] + x.sum((-1, -2))",
        "return 2 * torch.linalg.cholesky(y).diagonal(dim1=-2, dim2=-1).log().sum(-1) + x.sum((-1, -2))",
        "[a, a.mT @ a + torch.eye(12)]",
    )
    assert found == "SAME", why
    assert any("raises" in said for said in report.left_out)


def test_a_matrix_is_symmetric_though_its_sums_are_rounded_otherwise() -> None:
    a = torch.randn(5, 5)
    product = a @ a.mT
    product[0, 1] += product.abs().max() * 2**-22
    assert contents.structure(product) == "symmetric"
    assert contents.structure(product + 1e-3 * torch.randn(5, 5)) == ""
    assert contents.structure(torch.randn(9, 9)) == ""


def test_one_that_raises_on_its_own_data_is_refused(compared: Compare) -> None:
    with pytest.raises(Exception, match="positive-definite"):
        compared(
            "return torch.linalg.slogdet(y)[1]",
            "return torch.linalg.cholesky(-y).diagonal(dim1=-2, dim2=-1).sum(-1)",
            "[a, a.mT @ a + torch.eye(12)]",
        )


@pytest.mark.parametrize("forward", ["(x.mT @ x).sum(-1)", "torch.linalg.cross(x[..., :3], x[..., 3:6])"])
def test_one_that_raises_where_nothing_is_factored_is_refused(compared: Compare, forward: str) -> None:
    with pytest.raises(Exception, match="no"):
        compared(
            f"return {forward}",
            f"if bool((x < -5).any()): raise torch.linalg.LinAlgError('no')\n        return {forward}",
            "[a, a]",
        )


def test_one_that_raises_on_most_probes_is_refused(compared: Compare) -> None:
    usual = "if not 0.9 < float(x.std()) < 1.1: raise torch.linalg.LinAlgError('no')"
    forward = "return torch.linalg.solve(y, x.mT)"
    with pytest.raises(Exception, match="no"):
        compared(forward, f"{usual}\n        {forward}", "[a, a.mT @ a + torch.eye(12)]")


def test_a_solver_of_least_squares_gets_matrices_of_full_rank(compared: Compare) -> None:
    found, why, report = compared(
        "return torch.linalg.lstsq(x, y).solution",
        "q, r = torch.linalg.qr(x)\n        return torch.linalg.solve_triangular(r, q.mT @ y, upper=True)",
        "[a, torch.randn(8, 24, 3)]",
    )
    assert found == "SAME", why
    assert not any(said.startswith(SINGULAR_RAISED) for said in report.left_out)


PATHS = "d = y\n        for k in range(12):\n            d = torch.minimum(d, d[:, :, k, None] + d[:, None, k])\n        return d"
SQUARED = """d = y
        for _ in range(4):
            d = (d[:, :, :, None] + d[:, None]).amin(2)
        return torch.minimum(d, y)"""


def test_paths_that_diverge_are_left_out(compared: Compare) -> None:
    """Weights below zero make cycles along which both ways go on, each in steps of its own."""
    inputs = "[0.5, (torch.rand(8, 12, 12) + 0.1) * (1 - torch.eye(12))]"
    paths = PATHS.replace("range(12)", "[*range(12)] * 12")
    squared = SQUARED.replace("range(4)", "range(40)")
    found, why, report = compared(paths, squared, inputs)
    assert found == "SAME", why
    assert any(probe.get("reason") == EXPLODES for probe in report.probes)
