"""What outputs depend on: coarse arithmetic before one output says nothing about another, nor does a place that is picked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mm32.verify.judging import exact
from mm32.verify.judging.bounds import U32, Errors, Truth
from mm32.verify.judging.flow import Label
from mm32.verify.judging.judge import judge_leaf

Compare = Callable[..., tuple[str, str, Any]]
U16, U8 = 2.0**-11, 2.0**-8
X = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))


def labels(forward: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor = X) -> list[Label | None]:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return forward(x)

    recorder, output = exact.record(Model(), [x])
    return [recorder.flow.of(t) for t in output]


def test_coarse_arithmetic_is_of_the_outputs_behind_it() -> None:
    coarse, fine = labels(lambda x: ((x.half() @ x.half().T).float() + 1, x @ x.T))
    assert coarse == Label(U16, U16)
    assert fine == Label(U32, U32)


def test_what_is_cast_only_to_be_returned_is_fine_inside() -> None:
    (cast,) = labels(lambda x: ((x @ x.T).bfloat16(),))
    assert cast == Label(U8, U32, U8)
    (back,) = labels(lambda x: ((x @ x.T).bfloat16().float() * 2,))
    assert back == Label(U8, U8)


def written_through_a_view(x: Tensor) -> tuple[Tensor, ...]:
    out, other = torch.zeros(8, 16), torch.zeros(8, 16)
    out[2:4].copy_(x[2:4].bfloat16() * 2)
    return out, other.add_(x)


def test_what_is_written_through_a_view_counts_for_the_whole() -> None:
    out, other = labels(written_through_a_view)
    assert out is not None
    assert out.u == U8
    assert other == Label(U32, U32)


def test_a_number_that_left_for_python_may_be_anywhere() -> None:
    before, behind = labels(lambda x: (x * 2, x * float((x.half() * 2).sum())))
    assert before == Label(U32, U32)
    assert behind is not None
    assert behind.u == U16


def test_a_place_is_picked_where_indices_come_from_entries() -> None:
    place, count, value, looked_up = labels(
        lambda x: (x.argmax(1) + 1, (x == x.amax()).sum(1), x.max(1).values, x.gather(1, x.sort(1).indices))
    )
    found = [label is not None and label.picked for label in (place, count, value, looked_up)]
    assert found == [True, False, False, True]


def test_each_output_is_perturbed_by_its_own_roundoff() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x @ x.T, x @ x.T

    right = Model()(X)
    found = exact.run(Model(), [X], [], right, [U16, U32], 3)
    (coarse, _), (fine, _) = found.noise
    assert coarse > 100 * fine > 0


@pytest.mark.parametrize("wrong", [False, True])
def test_a_fine_output_beside_a_coarse_one_is_judged_as_fine(verdict: Compare, wrong: bool) -> None:
    right = "return (x.bfloat16() @ self.w.bfloat16()).float(), x @ self.w"
    other = "return (x.bfloat16() @ self.w.bfloat16()).float(), " + (
        "(x.half() @ self.w.half()).float()" if wrong else "(self.w.T @ x.T).T"
    )
    got, reason, _ = verdict(right, other, "[torch.randn(64, 64)]", init="self.w = nn.Parameter(torch.randn(64, 64))")
    assert got == ("DIFFERENT" if wrong else "SAME"), reason
    if wrong:
        assert "output[1]" in reason


@pytest.mark.parametrize("wrong", [False, True])
def test_counts_beside_a_place_are_no_places(verdict: Compare, wrong: bool) -> None:
    right = "return x.argmax(1), (x == x.amax(1, keepdim=True)).sum(1)"
    other = "i = x.flip(1).argmax(1); return {}".format(
        "x.shape[1] - 1 - i, torch.ones_like(i)"
        if wrong
        else "x.shape[1] - 1 - i, (x >= x.amax(1, keepdim=True)).sum(1)"
    )
    got, reason, _ = verdict(right, other, "[torch.randn(64, 33)]")
    assert got == ("DIFFERENT" if wrong else "SAME"), reason


def test_columns_are_judged_in_the_part_of_a_batch_that_has_a_truth() -> None:
    generator = torch.Generator().manual_seed(5)
    exact_ = torch.randn(4096, 3, dtype=torch.float64, generator=generator) * torch.tensor([1.0, 1.0, 1e-3])
    reference, rows = exact_.float(), torch.arange(0, 4096, 4)
    truth = Truth("output", reference, exact_[rows], noise=Errors(U32, 1.0), rows=rows)
    assert judge_leaf(reference * (1 + U32), truth).same
    off = reference.clone()
    off[:, 2] += 3e-7 * torch.randn(4096, generator=generator)
    found = judge_leaf(off, truth)
    assert not found.same
    assert "entry 2 of 3 along axis 1" in found.reason
    assert "of the part of the batch" in found.reason
    off = reference.clone()
    off[1::4, 2] += 3e-7 * torch.randn(1024, generator=generator)
    assert judge_leaf(off, truth).same, "no truth tells of these rows' small column"
