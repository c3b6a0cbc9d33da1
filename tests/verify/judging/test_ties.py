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
    """Quantises each row by its own scale, and multiplies it by integers."""

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        scale = x.abs().amax(1, keepdim=True) / 127
        return (torch.round(x / scale) * scale) @ w


EDGES = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
ROWS_OF_EDGES = EDGES.repeat(2, 1)


def fake_quantized_by_channel(t: Tensor) -> Tensor:
    scales, zeros = torch.tensor([0.5, 2.0]), torch.zeros(2, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(t, scales, zeros, 0, -8, 7)


def near_a_half(row: int, at: int) -> Tensor:
    """Return data with one entry halfway between two codes, to the last bit of fp32 but one."""
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
    # An error more than twice as large is a mistake, even in that row.
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
        (lambda t: torch.round(t, decimals=1), [0.25 - 1e-9, -0.35 - 1e-9], [0.3, -0.3]),
        (lambda t: torch.remainder(t, 3.0), [6.0 + 1e-12, -3.0 - 1e-12], [3.0, 0.0]),
        (lambda t: torch.fmod(t, 3.0), [6.0 + 1e-12, -6.0 - 1e-12, 1e-12], [3.0, -3.0, 0.0]),
        (lambda t: t.frac(), [2.0 - 1e-12, -2.0 + 1e-12], [0.0, 0.0]),
        (lambda t: t.sign(), [1e-9, -1e-9], [-1.0, 1.0]),
        (lambda t: torch.heaviside(t, torch.zeros((), dtype=t.dtype)), [1e-9, -1e-9], [0.0, 1.0]),
        (lambda t: torch.bucketize(t, EDGES), [1 - 1e-9, 1 + 1e-9, 3 + 1e-9, -1e-9], [2, 1, 2, 1]),
        (lambda t: torch.searchsorted(ROWS_OF_EDGES, t), [[1 - 1e-9, 1 + 1e-9], [0.0, 3.1]], [[2, 1], [1, 2]]),
        (
            lambda t: torch.fake_quantize_per_tensor_affine(t, 0.5, 1, -2, 5),
            [0.25 - 1e-9, 0.75 + 1e-9, 9.25],
            [0.5, 0.5, 2.0],
        ),
        (fake_quantized_by_channel, [0.25 - 1e-9, 3 + 1e-9], [0.5, 2.0]),
    ],
)
def test_the_other_side(step: Callable[[Tensor], Tensor], x: list[object], other: list[object]) -> None:
    operand = torch.tensor(x, dtype=torch.float64)
    ties = Ties()
    ties.near[0] = torch.ones(operand.shape, dtype=torch.bool)
    usual = step(operand)
    found = usual.clone()
    for part in range(PARTS):
        with OtherSide(ties, part):
            moved = step(operand)
        found = torch.where(moved != usual, moved, found)
    assert torch.allclose(found.double(), torch.tensor(other, dtype=torch.float64), rtol=0, atol=1e-8)


def test_what_many_numbers_decide_is_left() -> None:
    ties = Ties()
    x = torch.full((100,), 0.5, dtype=torch.float64) + 1e-12
    clean, perturbed = Rounding(), Rounding(U, 1)
    clean.ties = perturbed.ties = ties
    one = torch.ones(100, dtype=torch.float64)
    for mode in (clean, perturbed):
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
    """Rounding decides which probability is the last of a nucleus where their sum is nearly the limit."""

    class Nucleus(nn.Module):
        def forward(self, p: Tensor) -> Tensor:
            kept = torch.where(p.cumsum(1) <= 0.75, p, 0)
            return kept / kept.sum(1, keepdim=True)

    p = torch.full((8, 64), 0.5 / 32)
    p[:, 48:] = 1 / 64
    p += torch.rand(8, 64, generator=torch.Generator().manual_seed(3)) * 1e-4
    p[2, :48] = 0.75 / 48 * (1 + 1e-9)  # 48 of them add up to the limit
    truth = truth_of(Nucleus(), p)
    assert truth.loose is not None
    assert (truth.loose > 0).any(1).nonzero().tolist() == [[2]]
    for row, at, same in ((2, 47, True), (3, 40, False)):
        kept = torch.where(p.double().cumsum(1) <= 0.75, p.double(), 0)
        kept[row, at] = 0 if kept[row, at] > 0 else p[row, at]
        assert judge_leaf((kept / kept.sum(1, keepdim=True)).float(), truth).same == same


class Binned(nn.Module):
    """Finds a bin for each product of a row and a weight, and looks its number up in a table."""

    tie = 3.0

    def scores(self, x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        table = torch.arange(40.0, dtype=x.dtype).square()
        return table[torch.bucketize(self.scores(x, w), torch.linspace(-19, 19, 39, dtype=x.dtype))]


class Wrapped(Binned):
    tie = 2.0

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.remainder(self.scores(x, w), 1.0) * 3


class Signs(Binned):
    tie = 0.0

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.sign(self.scores(x, w)) @ w.T


class FakeQuantised(Binned):
    tie = 0.125

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(self.scores(x, w), 0.25, 0, -128, 127) @ w.T


@pytest.mark.parametrize("model", [Binned, Wrapped, Signs, FakeQuantised])
def test_sums_in_another_order_may_step_to_the_other_side_and_coarse_ones_may_not(model: type[Binned]) -> None:
    class InHalves(model):  # type: ignore[misc, valid-type]
        def scores(self, x: Tensor, w: Tensor) -> Tensor:
            return x[:, 32:] @ w[32:] + x[:, :32] @ w[:32]

    class Coarse(model):  # type: ignore[misc, valid-type]
        def scores(self, x: Tensor, w: Tensor) -> Tensor:
            return x.bfloat16().float() @ w

    moved = 0
    for seed in range(8):
        draw = torch.Generator().manual_seed(seed)
        x, w = torch.randn(1024, 64, generator=draw), torch.randn(64, 32, generator=draw)
        for row in range(2):  # one score of each becomes a tie, up to the rounding of the row's entries
            of = w[:, row].double()
            x[row] += (of * ((model.tie - x[row].double() @ of) / (of @ of))).float()
        truth = truth_of(model(), x, w)
        honest = InHalves()(x, w)
        moved += int(((honest - model()(x, w)).abs() > 1e-2).any(1).sum())
        result = judge_leaf(honest, truth)
        assert result.same, result.reason
        assert not judge_leaf(Coarse()(x, w), truth).same
    assert moved > 0  # or this shows nothing
