"""Symmetric and triangular matrices stay such, and become ones that chance does not draw: rows without neighbours, eigenvalues of
both signs, multiples of the identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mm32.verify.inputs import variations
from mm32.verify.inputs.contents import CannotVary, structure
from mm32.verify.probing import prober
from support.verify.shortcuts import check_shortcut

Compare = Callable[..., tuple[str, str, Any]]
A = torch.randn(6, 5, 5, generator=torch.Generator().manual_seed(0))
DEFINITE = A @ A.mT + torch.eye(5)
SYMMETRIC = A + A.mT
LOWER = A.tril()
SPD = "(lambda a: [a @ a.mT / 16 + torch.eye(16), torch.randn(8, 16, 4)])(torch.randn(8, 16, 16))"
GRAPH = "(lambda a: [a + a.T, torch.randn(200, 8)])((torch.rand(200, 200) < 0.05).float().triu(1))"


def varied(name: str, t: Tensor) -> Tensor:
    (new,) = variations.fill(name, [t], torch.Generator().manual_seed(1))
    assert isinstance(new, Tensor)
    return new


@pytest.mark.parametrize("name", ["isolated", "indefinite", "isotropic"])
@pytest.mark.parametrize(
    "t", [DEFINITE, SYMMETRIC, LOWER, LOWER.mT.contiguous()], ids=["definite", "symmetric", "lower", "upper"]
)
def test_the_structure_is_kept(name: str, t: Tensor) -> None:
    new = varied(name, t)
    assert not torch.equal(new, t)
    assert structure(new) == structure(t)
    assert new.dtype == t.dtype


def test_masks_are_left_and_graphs_may_have_lonely_nodes() -> None:
    hidden = torch.full((8, 8), -torch.inf).triu(1)
    graph = (torch.rand(9, 9, generator=torch.Generator().manual_seed(2)) < 0.5).float().triu(1)
    graph = graph + graph.T
    for name in ("isolated", "indefinite", "isotropic"):
        for mask in (hidden, torch.ones(8, 8).tril(), *([] if name == "isolated" else [graph])):
            with pytest.raises(CannotVary):
                varied(name, mask)
    alone = varied("isolated", graph)
    assert int((alone.sum(1) == 0).sum()) > int((graph.sum(1) == 0).sum())
    assert set(alone.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("name", ["isolated", "indefinite", "isotropic"])
def test_other_matrices_are_left(name: str) -> None:
    with pytest.raises(CannotVary):
        variations.fill(name, [A, torch.randn(4, 7), torch.randn(9)], torch.Generator().manual_seed(1))


def test_what_they_become() -> None:
    assert not bool(torch.linalg.cholesky_ex(varied("isolated", DEFINITE)).info.any())
    assert bool((varied("isolated", SYMMETRIC) == 0).all(-1).any())
    sizes = torch.linalg.eigvalsh(varied("indefinite", DEFINITE))
    assert bool((sizes[..., 0] < -1e-3).all())
    assert bool((sizes.abs().amax(-1) == -sizes[..., 0]).all())  # the largest one is negative
    rows = varied("isotropic", DEFINITE)
    equal = (rows == rows[..., :1, :1] * torch.eye(5)).flatten(1).all(1)
    assert 0 < int(equal.sum()) < 6
    assert torch.equal(varied("isotropic", DEFINITE[0]).count_nonzero(), torch.tensor(5))


@pytest.mark.parametrize(
    ("right", "wrong", "inputs", "arguments", "probe"),
    [
        (
            "return torch.linalg.solve(a, b)",
            "return torch.cholesky_solve(b, torch.linalg.cholesky_ex(a).L)",
            SPD,
            "a, b",
            "indefinite",
        ),
        (
            "return torch.linalg.eigvalsh(a)[..., -1]",
            "return torch.linalg.svdvals(a)[..., 0]",
            "(lambda a: [a + a.mT + 12 * torch.eye(6)])(torch.randn(8, 6, 6))",
            "a",
            "indefinite",
        ),
        (
            "d = a.sum(1); s = torch.where(d > 0, d.clamp(min=1e-12).rsqrt(), 0); return (s[:, None] * a * s) @ x",
            "s = a.sum(1).rsqrt(); return (s[:, None] * a * s) @ x",
            GRAPH,
            "a, x",
            "isolated",
        ),
        (
            "m = a.diagonal(dim1=1, dim2=2).mean(1); q = a - m[:, None, None] * torch.eye(4); "
            "return q / q.square().sum((1, 2), keepdim=True).sqrt().clamp(min=1e-2)",
            "m = a.diagonal(dim1=1, dim2=2).mean(1); q = a - m[:, None, None] * torch.eye(4); "
            "return q / q.square().sum((1, 2), keepdim=True).sqrt()",
            "(lambda a: [a + a.mT])(torch.randn(32, 4, 4))",
            "a",
            "isotropic",
        ),
    ],
    ids=["definite alone", "the largest by size", "a node without edges", "a multiple of the identity"],
)  # fmt: skip
def test_a_shortcut_shows(right: str, wrong: str, inputs: str, arguments: str, probe: str, verdict: Compare) -> None:
    check_shortcut(verdict, right, wrong, inputs, arguments, "pass", probe)


def test_steps_of_integers_in_order_become_uneven() -> None:
    starts = torch.arange(0, 330, 10) + torch.randint(0, 9, (33,), generator=torch.Generator().manual_seed(4))
    (new,) = variations.fill("uneven steps", [starts], torch.Generator().manual_seed(1))
    assert isinstance(new, Tensor)
    steps = new.diff()
    assert (int(new[0]), int(new[-1])) == (int(starts[0]), int(starts[-1]))
    assert int(steps.min()) == 0
    assert int(steps.max()) > 100
    for other in (torch.arange(40), starts.flip(0), torch.randperm(40), torch.tensor([1, 5, 9]), starts.float()):
        with pytest.raises(CannotVary):
            variations.fill("uneven steps", [other], torch.Generator().manual_seed(1))


def test_a_row_that_is_longer_than_drawn_ones_shows(verdict: Compare) -> None:
    right = "return torch.segment_reduce(x, 'sum', offsets=o)"
    wrong = "e = torch.minimum(o[1:], o[:-1] + 40); return torch.stack([x[a:b].sum(0) for a, b in zip(o.tolist(), e.tolist())])"
    starts = (
        "torch.cat([torch.tensor([0]), torch.arange(20, 300, 20) + torch.randint(0, 9, (14,)), torch.tensor([320])])"
    )
    check_shortcut(verdict, right, wrong, f"[torch.randn(320, 8), {starts}]", "x, o", "pass", "uneven steps")


def test_a_factor_that_needs_positive_definite_matrices_may_say_so(verdict: Compare) -> None:
    """What solves with covariances may factor them. Raising on other matrices is no wrong answer, but the line says it."""
    right = "return torch.linalg.solve(x, torch.ones(4, 6, 2))"
    factored = "return torch.cholesky_solve(torch.ones(4, 6, 2), torch.linalg.cholesky(x))"
    made = "(lambda a: [a @ a.mT + torch.eye(6)])(torch.randn(4, 6, 6))"
    found, why, report = verdict(right, factored, made)
    assert found == "SAME", why
    assert prober.INDEFINITE_RAISED in report.left_out
    (probe,) = [p for p in report.probes if p["name"] == "indefinite"]
    assert probe["status"] == "skipped"
    assert prober.INDEFINITE_RAISED not in verdict(right, right, made)[2].left_out
