"""Numbers near a tie of a rounding to integers: room where they move an output, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mm32.verify.judging import exact
from mm32.verify.judging.bounds import Errors, Truth
from mm32.verify.judging.judge import judge_leaf
from mm32.verify.judging.rounding import Rounding
from mm32.verify.judging.ties import PARTS, OtherSide, Ties

U = 2.0**-24


class Quantised(nn.Module):
    """Codes by a scale for each row, times integers."""

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        scale = x.abs().amax(1, keepdim=True) / 127
        return (torch.round(x / scale) * scale) @ w


def near_a_half(row: int, at: int) -> Tensor:
    """Data whose entry at a place is a half of a code, to the last bit of fp32 but one."""
    x = torch.rand(16, 64, generator=torch.Generator().manual_seed(4)) * 0.7
    x[:, 0] = 1.0
    x[row, at] = float(torch.tensor(40.5 / 127, dtype=torch.float64) * (1 - 2.0**-24))
    return x


def truth_of(model: nn.Module, *inputs: Tensor) -> Truth:
    right = model(*inputs)
    found = exact.run(model, list(inputs), [], right, U, 0)
    truth = Truth("output", right, found.output, k=64, noise=Errors(*found.noise[0]))
    truth.loose = found.loose[0] if found.loose else None
    return truth


def test_the_row_of_such_a_number_has_room_and_no_other() -> None:
    w = torch.randint(-3, 4, (64, 8), generator=torch.Generator().manual_seed(5)).float()
    w[9] = 2.0
    x = near_a_half(5, 9)
    truth = truth_of(Quantised(), x, w)
    assert truth.loose is not None
    assert (truth.loose > 0).any(1).nonzero().tolist() == [[5]]
    for row, same in ((5, True), (6, False)):
        other = x.double()
        scale = other.abs().amax(1, keepdim=True) / 127
        codes = torch.round(other / scale)
        codes[row, 9] += 1 if codes[row, 9] == 40 else -1
        result = judge_leaf(((codes * scale) @ w.double()).float(), truth)
        assert result.same == same, result.reason
    # Twice as far is another mistake, in that row too.
    assert not judge_leaf(truth.exact.float() + 2.5 * truth.loose, truth).same


def test_data_without_such_numbers_have_none() -> None:
    x = torch.arange(64.0).reshape(1, 64).repeat(16, 1)
    x[:, 0] = 127.0
    assert truth_of(Quantised(), x, torch.ones(64, 8)).loose is None


def test_an_exact_tie_goes_where_the_operator_says() -> None:
    class Halves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.round(x / 2)

    x = torch.arange(4096.0)
    truth = truth_of(Halves(), x)
    assert truth.loose is None
    assert not judge_leaf(torch.floor(x / 2 + 0.5), truth).same


@pytest.mark.parametrize(
    ("step", "x", "other"),
    [
        (torch.round, [2.5 - 1e-9, 3.5 + 1e-9, -0.5 + 1e-9], [3.0, 3.0, -1.0]),
        (torch.floor, [3.0 + 1e-9, 3.0 - 1e-9, -2.0], [2.0, 3.0, -3.0]),
        (torch.ceil, [3.0 + 1e-9, 3.0 - 1e-9, -2.0], [3.0, 4.0, -1.0]),
        (torch.trunc, [3.0 + 1e-9, 3.0 - 1e-9, -2.0 + 1e-9, -2.0 - 1e-9, 1e-9], [2.0, 3.0, -2.0, -1.0, 0.0]),
        (lambda t: t.to(torch.int32), [3.0 + 1e-9, -2.0 - 1e-9], [2, -1]),
        (lambda t: torch.div(t, 2.0, rounding_mode="floor"), [6.0 + 1e-9, 6.0 - 1e-9], [2.0, 3.0]),
        (lambda t: t > 2, [2 + 1e-9, 2 - 1e-9], [False, True]),
        (lambda t: t <= torch.full_like(t, 2.0), [2 + 1e-9, 2 - 1e-9], [True, False]),
        (lambda t: t.clone().round_(), [2.5 - 1e-9, 3.5 + 1e-9], [3.0, 3.0]),
    ],
)
def test_the_other_side(step: Callable[[Tensor], Tensor], x: list[float], other: list[float]) -> None:
    operand = torch.tensor(x, dtype=torch.float64)
    ties = Ties()
    ties.near[0] = torch.ones(len(x), dtype=torch.bool)
    usual = step(operand)
    found = usual.clone()
    for part in range(PARTS):
        with OtherSide(ties, part):
            moved = step(operand)
        found = torch.where(moved != usual, moved, found)
    assert found.tolist() == other


def test_what_many_numbers_decide_is_left() -> None:
    ties = Ties()
    x = torch.full((100,), 0.5, dtype=torch.float64) + 1e-12
    clean, disturbed = Rounding(), Rounding(U, 1)
    clean.ties = disturbed.ties = ties
    one = torch.ones(100, dtype=torch.float64)
    for mode in (clean, disturbed):
        with mode:
            torch.round(x * one)
    assert not ties.near


def test_integers_that_such_numbers_change_count_as_changed_by_rounding() -> None:
    class Codes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.round(x / (x.abs().amax(1, keepdim=True) / 127)).to(torch.int8)

    x = near_a_half(3, 7)
    found = exact.run(Codes(), [x], [], Codes()(x), U, 0)
    assert found.flips[0] >= 1
    assert found.steps[0] == 1


def test_a_sum_near_a_limit_may_be_cut_one_place_later() -> None:
    """Of a nucleus of probabilities, what comes last is a matter of rounding where their sum is nearly the limit."""

    class Nucleus(nn.Module):
        def forward(self, p: Tensor) -> Tensor:
            kept = torch.where(p.cumsum(1) <= 0.75, p, 0)
            return kept / kept.sum(1, keepdim=True)

    p = torch.full((8, 64), 0.5 / 32)
    p[:, 48:] = 1 / 64
    p += torch.rand(8, 64, generator=torch.Generator().manual_seed(3)) * 1e-4
    p[2, :48] = 0.75 / 48 * (1 + 1e-9)  # as many as 48 add up to the limit
    truth = truth_of(Nucleus(), p)
    assert truth.loose is not None
    assert (truth.loose > 0).any(1).nonzero().tolist() == [[2]]
    for row, at, same in ((2, 47, True), (3, 40, False)):
        kept = torch.where(p.double().cumsum(1) <= 0.75, p.double(), 0)
        kept[row, at] = 0 if kept[row, at] > 0 else p[row, at]
        assert judge_leaf((kept / kept.sum(1, keepdim=True)).float(), truth).same == same
