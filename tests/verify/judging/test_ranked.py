"""Picks of the largest, the nearest and the k best, where the next one is equally good up to rounding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mm32.verify.judging import exact
from mm32.verify.judging.bounds import Errors, Truth
from mm32.verify.judging.judge import judge_leaf
from mm32.verify.judging.ties import PARTS, OtherSide, Ties

U = 2.0**-24
X = torch.tensor([[1.0, 5.0, 3.0, 4.0], [8.0, 6.0, 2.0, 7.0]], dtype=torch.float64)


def picked(pick: Callable[[Tensor], Tensor], near: Tensor) -> list[list[int]]:
    """Return the answers of all runs, each with another part of the ties on the other side."""
    ties = Ties()
    ties.near[0] = near
    found = []
    for part in range(PARTS):
        with OtherSide(ties, part):
            found.append(pick(X).tolist())
    return found


@pytest.mark.parametrize(
    ("pick", "second"),
    [
        (lambda t: t.argmax(1), [3, 3]),
        (lambda t: t.argmin(1), [2, 1]),
        (lambda t: t.argmax(1, keepdim=True), [[3], [3]]),
        (lambda t: t.max(1).indices, [3, 3]),
        (lambda t: t.max(1).values, [4.0, 7.0]),
        (lambda t: t.min(1, keepdim=True).indices, [[2], [1]]),
        (lambda t: t.min(0).values, [8.0, 6.0, 3.0, 7.0]),
        (lambda t: t.topk(1).indices, [[3], [3]]),
        (lambda t: t.topk(1, largest=False).values, [[3.0], [6.0]]),
    ],
)
def test_one_that_is_picked_may_be_the_next(pick: Callable[[Tensor], Tensor], second: list[object]) -> None:
    count = len(second) if isinstance(second[0], float) and len(second) == 4 else 2
    found = picked(pick, torch.ones(1, count, dtype=torch.bool))
    usual = pick(X).tolist()
    for i, (mine, other) in enumerate(zip(usual, second, strict=True)):
        assert {str(one[i]) for one in found} == {str(mine), str(other)}


def test_the_largest_of_all_may_be_the_next() -> None:
    assert sorted(picked(lambda t: t.argmax(), torch.ones(1, dtype=torch.bool))) == [4, 4, 4, 7]


def test_only_those_that_are_near_change_places() -> None:
    near = torch.zeros(2, 2, dtype=torch.bool)
    near[1, 0] = True  # the second and the third of the first row
    assert sorted(picked(lambda t: t.topk(2).indices, near)) == [[[1, 2], [0, 3]]] + [[[1, 3], [0, 3]]] * 3
    near = torch.zeros(3, 2, dtype=torch.bool)
    near[0, 1] = True
    usual, other = [[1, 3, 2, 0], [0, 3, 1, 2]], [[1, 3, 2, 0], [3, 0, 1, 2]]
    assert sorted(picked(lambda t: t.sort(1, descending=True).indices, near)) == [usual] * 3 + [other]
    assert sorted(picked(lambda t: t.argsort(1, descending=True), near)) == [usual] * 3 + [other]


def test_all_pairs_of_a_sort_may_change_places() -> None:
    x = torch.rand(1000, dtype=torch.float64)
    ties = Ties()
    ties.near[0] = torch.ones(999, dtype=torch.bool)
    for part in range(PARTS):
        with OtherSide(ties, part):
            values, places = x.sort()
        assert torch.equal(x[places], values)
        assert torch.equal(places.sort().values, torch.arange(1000))


class Router(nn.Module):
    """Multiplies each row by the matrices of the two experts, of eight, with the best scores."""

    def scores(self, x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    def forward(self, x: Tensor, w: Tensor, experts: Tensor) -> Tensor:
        share, place = torch.softmax(self.scores(x, w), -1).topk(2, -1)
        return sum((share * (place == i)).sum(-1, keepdim=True) * (x @ one) for i, one in enumerate(experts))  # type: ignore[return-value]


class InHalves(Router):
    def scores(self, x: Tensor, w: Tensor) -> Tensor:
        return x[:, 16:] @ w[16:] + x[:, :16] @ w[:16]


class Coarse(Router):
    def scores(self, x: Tensor, w: Tensor) -> Tensor:
        return x.bfloat16().float() @ w


def test_a_row_goes_to_either_of_two_that_are_nearly_as_good_and_no_other_row_does() -> None:
    draw = torch.Generator().manual_seed(3)
    x, w = torch.randn(4096, 32, generator=draw), torch.randn(32, 8, generator=draw)
    experts = torch.randn(8, 32, 32, generator=draw)
    for row in range(8):  # its second and third score become equal, up to the rounding of its entries
        best = (x[row].double() @ w.double()).topk(3).indices
        apart = (w[:, best[1]] - w[:, best[2]]).double()
        x[row] -= (apart * ((x[row].double() @ apart) / (apart @ apart))).float()
    model = Router()
    right = model(x, w, experts)
    found = exact.run(model, [x, w, experts], [], right, U, 0)
    truth = Truth("output", right, found.output, k=64, noise=Errors(*found.noise[0]), loose=found.loose[0])
    assert truth.loose is not None
    rows = (truth.loose > 0).any(1)
    assert bool(rows[:8].all())
    assert int(rows.sum()) < 64
    assert judge_leaf(InHalves()(x, w, experts), truth).same
    assert not judge_leaf(Coarse()(x, w, experts), truth).same
    other = right.clone()
    other[4000] = (x[4000] @ experts[0]) * 0.5
    assert not judge_leaf(other, truth).same


def test_equal_entries_are_no_matter_of_rounding() -> None:
    class Best(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.gather(1, x.argmax(1, keepdim=True)) * torch.arange(4.0)

    x = torch.tensor([[1.0, 2.0, 2.0, 0.0]] * 3 + [[4.0, 1.0, 2.0, 3.0]] * 200)
    found = exact.run(Best(), [x], [], Best()(x), U, 0)
    assert not any(one is not None for one in found.loose)
