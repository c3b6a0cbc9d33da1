"""Integers that repeat or are in order, rows of booleans, relabelled matrices; the order of equal entries; late windows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mm32.verify.inputs import contents, variations
from mm32.verify.inputs.contents import CannotVary
from mm32.verify.inputs.seen import Seen
from mm32.verify.judging import odd_values
from mm32.verify.judging.rounding import Rounding
from mm32.verify.probing.passed import PASSED_BYTES, PassedProbes
from mm32.verify.timing import kept_outputs, sequential

Compare = Callable[..., tuple[str, str, Any]]


def made(name: str, *tensors: Tensor, seed: int = 1) -> list[Tensor]:
    return variations.fill(name, list(tensors), torch.Generator().manual_seed(seed))  # type: ignore[return-value]


def test_integers_of_some_rows_become_one_of_the_rows_own() -> None:
    t = torch.randint(0, 50, (30, 64)) + 100 * torch.arange(30)[:, None]
    (new,) = made("repeated integers", t)
    assert bool((new // 100 == t // 100).all())  # in the range of its row
    most = [int(row.bincount().max()) for row in new]
    assert 1 <= sum(count > 48 for count in most) <= 20
    one = torch.randint(0, 64, (2048,))
    (new,) = made("repeated integers", one)
    assert int(new.bincount().max()) > 1024


@pytest.mark.parametrize(
    "t",
    [
        torch.randperm(64),
        torch.arange(64) // 3,
        torch.ones(64).long(),
        torch.eye(9).long()[torch.randperm(9)],
        torch.rand(64),
    ],
    ids=["a permutation", "in order", "all the same", "one-hot", "floats"],
)
def test_what_cannot_repeat_stays(t: Tensor) -> None:
    with pytest.raises(contents.CannotVary):
        made("repeated integers", t)


def test_integers_and_truth_values_in_order() -> None:
    pairs = torch.stack([torch.randint(0, 9, (40,)), torch.randint(50, 90, (40,))])
    mask = torch.rand(16, 24) < 0.3
    new, truth = made("sorted integers", pairs, mask)
    assert torch.equal(new.sort(-1).values, pairs.sort(-1).values)
    for axis in (0, 1):
        steps = truth.long().diff(dim=axis)
        assert bool((steps >= 0).all()) or bool((steps <= 0).all())
    assert int(truth.sum()) == int(mask.sum())
    (one,) = made("integers sorted along one axis", mask)
    assert torch.equal(one.sum(-1), mask.sum(-1))


def test_sorted_integers_all_go_one_way_and_what_is_in_order_stays() -> None:
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), torch.randint(1, 9, (30,)).cumsum(0)])
    ways = set()
    for seed in range(20):
        a, b = torch.randint(0, 20, (4, 64)), torch.randint(0, 20, (4, 64))
        x, y, kept = variations.fill("sorted integers", [a, b, offsets], torch.Generator().manual_seed(seed))
        assert torch.equal(kept, offsets)  # type: ignore[arg-type]
        rising = [bool((t.diff(dim=-1) >= 0).all()) for t in (x, y)]  # type: ignore[attr-defined]
        assert rising[0] == rising[1]
        ways.add(rising[0])
    assert ways == {False, True}


def test_alike_integers_are_those_of_the_first_but_for_a_few() -> None:
    a, b = torch.randint(0, 20, (32, 64)), torch.randint(0, 20, (32, 64))
    x, y = made("alike inputs", a, b)
    assert torch.equal(x, a)
    same = (y == a).float().mean(-1)
    assert 0 < int((same < 1).sum()) < 32
    assert bool((same > 0.7).all())


def test_rows_of_truth_values() -> None:
    mask = torch.rand(90, 16) < 0.5
    (new,) = made("boolean rows", mask)
    assert {0, 1, 15, 16} <= set(new.sum(-1).tolist())
    (some,) = made("boolean rows but for one", mask)
    changed = (some != mask).any(-1)
    assert set(some.sum(-1)[changed].tolist()) == {1, 15}
    with pytest.raises(contents.CannotVary):
        made("boolean rows", torch.ones(9, 9, dtype=torch.bool).tril())


def test_symmetric_matrices_keep_what_they_are() -> None:
    x = torch.randn(12, 12)
    t = x @ x.T
    t = (t + t.T) / 2
    (new,) = made("relabelled", t)
    assert torch.equal(new, new.T)
    assert not torch.equal(new, t)
    assert torch.equal(new.diagonal().sort().values, t.diagonal().sort().values)
    with pytest.raises(contents.CannotVary):
        made("relabelled", torch.eye(5))


def test_a_sparse_input_is_data_and_a_sparse_mask_is_none() -> None:
    few = torch.rand(1000, 1000) < 0.002
    assert contents.is_data(torch.where(few, torch.randn(1000, 1000), 0.0))
    assert not contents.is_data(few.float())
    assert not contents.is_data(torch.where(few, torch.randint(1, 5, (1000, 1000)).float(), 0.0))
    assert not contents.is_data(torch.where(few, -torch.inf, 0.0))


RANKS = "return x + 0.01 * x.argsort(-1).argsort(-1)"
OTHER_RANKS = "return x + 0.01 * x.flip(-1).argsort(dim=-1, stable=True).argsort(-1).flip(-1)"
WRONG_RANKS = "return x + 0.01 * x.abs().argsort(-1).argsort(-1)"


def test_equal_entries_may_come_in_any_order(verdict: Compare) -> None:
    got, reason, _ = verdict(RANKS, OTHER_RANKS, "[torch.randn(16, 40)]")
    assert got == "SAME", reason
    got, reason, _ = verdict(RANKS, WRONG_RANKS, "[torch.randn(16, 40)]")
    assert got == "DIFFERENT", reason


@pytest.mark.parametrize("name", ["sort", "topk", "kthvalue", "median", "stable"])
def test_a_perturbed_run_has_another_order_of_equal_entries(name: str) -> None:
    t = torch.tensor([2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0], dtype=torch.float64).expand(5, 7)
    call: dict[str, Callable[[], Any]] = {
        "sort": lambda: t.sort(-1),
        "topk": lambda: t.topk(4, -1),
        "kthvalue": lambda: t.kthvalue(3, -1),
        "median": lambda: t.median(-1),
        "stable": lambda: t.sort(dim=-1, stable=True),
    }
    places = []
    for seed in range(8):
        with (mode := Rounding(2.0**-24, seed)):
            values, at = call[name]()
        assert mode.unordered == (name != "stable")
        assert torch.equal(values, t.gather(-1, at.reshape(5, -1)).reshape(values.shape))
        places.append(at.flatten().tolist())
    assert (len({tuple(p) for p in places}) == 1) == (name == "stable")
    with (mode := Rounding(2.0**-24, 0)):
        torch.arange(5.0).sort()
        torch.zeros(0, 5).sort(0)
        torch.zeros(5, 1).sort(-1)
    assert not mode.unordered


def test_a_complex_number_is_nan_or_infinite_whichever_part_is() -> None:
    nan, inf = float("nan"), float("inf")
    one, other = (
        torch.tensor([complex(nan, 0), complex(inf, 0), 1]),
        torch.tensor([complex(nan, nan), complex(inf, nan), 1]),
    )
    assert odd_values.difference(one, other, "x") == ""
    assert "NaN" in odd_values.difference(torch.tensor([complex(nan, 0)]), torch.tensor([complex(1, 0)]), "x")
    assert "Inf" in odd_values.difference(torch.tensor([complex(1, 0)]), torch.tensor([complex(0, inf)]), "x")


def test_windows_with_probes_data_come_late_too() -> None:
    counts = []
    for seed in range(200):
        chance = random.Random(seed)
        surprises = kept_outputs.Surprises({f"probe {i}": i for i in range(9)}, 20, chance)  # type: ignore[arg-type]
        early = sum(surprises.due(number) for number in range(sequential.MIN_ROUNDS))
        assert early == len(surprises.left)
        counts.append(sum(surprises.due(number) for number in range(sequential.MIN_ROUNDS, 40)))
        assert surprises.once_more() == 1
        assert len(surprises.left) == early + counts[-1] + 1
    assert max(counts) == kept_outputs.LATER
    assert sum(count > 0 for count in counts) > 190
    assert kept_outputs.Surprises({}, 20, random.Random(0)).once_more() == 0  # type: ignore[arg-type]


def test_each_probe_has_the_same_chance_of_a_place_in_windows() -> None:
    """Where the data of five probes fit, they may be those of any of twenty."""
    seen = dict.fromkeys(range(20), 0)
    inputs = torch.empty(PASSED_BYTES // 20, dtype=torch.float32)  # a fifth of the room
    for _ in range(400):
        data = PassedProbes()
        for number in range(20):
            data.keep(str(number), list, [inputs])
        assert len(data.found) == 5
        for one in data.found:
            seen[int(one.name)] += 1
    assert all(60 < count < 145 for count in seen.values())


def test_a_number_that_was_always_the_same_is_named(verdict: Compare) -> None:
    right = "return x * scale + torch.arange(40, device=x.device).ge(at)"
    wrong = "return x * 0.125 + torch.arange(40, device=x.device).ge(7)"
    got, reason, report = verdict(
        right, wrong, "[torch.randn(16, 40), torch.tensor([7]), 0.125]", arguments="x, at, scale"
    )
    assert got == "SAME", reason
    assert {"input 1 other than [7]", "input 2 other than 0.125"} <= set(report.left_out)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64])
@pytest.mark.parametrize("symmetric", [False, True])
def test_a_square_of_ones_becomes_a_path_through_all_rows(dtype: torch.dtype, symmetric: bool) -> None:
    ones = torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(1)) < 0.1
    ones = ones | ones.mT if symmetric else ones
    t = ones.to(dtype)
    (new,) = made("chained", t)
    assert (new.dtype, new.shape) == (t.dtype, t.shape)
    own = torch.eye(40, dtype=torch.bool)
    assert torch.equal(new != 0, (new != 0) & ~own | (ones & own))  # the diagonal stays
    path = (new != 0) & ~own
    assert torch.equal(path, path.mT) is symmetric
    steps = (path | path.mT | own).float()
    reached = torch.linalg.matrix_power(steps, 39) > 0
    assert reached.all()
    assert not (torch.linalg.matrix_power(steps, 38) > 0).all(), "no shorter way leads through all"


@pytest.mark.parametrize(
    "t",
    [
        torch.ones(12, 12).tril(),
        torch.arange(12) < torch.arange(1, 13)[:, None],
        torch.rand(12, 9) < 0.5,
        torch.rand(12, 12) - 0.5,
        torch.eye(12)[torch.randperm(12)],
        torch.eye(12)[torch.randint(0, 12, (12,))],
    ],
)
def test_masks_of_blocks_and_what_is_no_matrix_of_ones_stay(t: torch.Tensor) -> None:
    with pytest.raises(CannotVary):
        made("chained", t)


def test_how_integers_are_arranged_is_named_where_it_was_so_in_all() -> None:
    def said(*inputs: torch.Tensor) -> list[str]:
        seen = Seen()
        for i, t in enumerate(inputs):
            seen.note([t], first=i == 0)
        return seen.unlike([inputs[-1]])

    a, b = torch.randperm(90), torch.randperm(90)
    assert said(a, b, b.sort().values) == ["input 0 other than without repetition"]
    assert said(a, b, a % 60) == []
    segments = [torch.randint(0, 9, (64,)).sort().values for _ in range(2)]
    assert said(*segments) == ["input 0 other than sorted"]
    assert said(segments[0].sort(descending=True).values, segments[0]) == ["input 0 other than sorted"]
    assert said(torch.randint(0, 9, (64,)), torch.randint(0, 9, (64,))) == []
    assert said(torch.randint(0, 1 << 40, (64,)), torch.randint(0, 1 << 40, (64,))) == []  # distinct by chance
    lengths = [torch.randint(1, 30, (8, 1)) for _ in range(2)]
    masks = [torch.arange(30) < length for length in lengths]
    assert said(*masks) == ["input 0 other than one block of booleans in each row"]
    assert said(masks[0], torch.rand(8, 30) < 0.5) == []


def test_what_matrices_of_one_structure_have_in_common_beyond_it_is_named() -> None:
    def said(make: Callable[[], Tensor]) -> list[str]:
        seen = Seen()
        for i in range(3):
            seen.note([make()], first=i == 0)
        return seen.unlike([make()])

    assert said(lambda: torch.diag_embed(torch.rand(6, 8))) == [
        "input 0 other than symmetric with 56 of 64 entries always the same"
    ]
    full = torch.rand(6, 8, 8)
    assert said(lambda: torch.randn(()) * (full + full.mT)) == ["input 0 other than symmetric"]
    assert said(lambda: torch.rand(6, 8, 8).tril()) == ["input 0 other than triangular"]
    unit = torch.eye(8)
    assert said(lambda: torch.rand(6, 8, 8).triu(1) + unit) == [
        "input 0 other than triangular with 8 of 64 entries always the same"
    ]
    assert said(lambda: torch.zeros(6, 8, 8)) == ["input 0 other than all zeros"]
    assert said(lambda: torch.rand(6, 8, 8)) == []


DRAWDOWN = """e = x.cumsum(1)
        p = e.cummax(1).values
        i = torch.arange(x.shape[1])
        return (p - e).amax(1), (i - torch.where(e >= p, i, 0).cummax(1).values).amax(1)"""


def test_a_running_maximum_is_one_of_the_entries(verdict: Compare) -> None:
    """Nothing of it is rounded, so it equals the entry that it is, and what is counted by that is judged."""
    made = "[torch.randn(5, 300)]"
    zeros = DRAWDOWN.replace("(i - torch.where(e >= p, i, 0).cummax(1).values).amax(1)", "torch.zeros(5).long()")
    assert verdict(DRAWDOWN, zeros, made)[0] == "DIFFERENT"
    got, reason, report = verdict(DRAWDOWN, DRAWDOWN, made)
    assert got == "SAME", reason
    assert not any("rounding may change half" in said for said in report.left_out)


def test_an_output_that_rounding_decides_in_all_comparisons_is_named(verdict: Compare) -> None:
    right = "s = torch.softmax(x, 1).sum(1); return x * 2, (s > 1).long()"
    got, reason, report = verdict(right, "return x * 2, torch.zeros(len(x)).long()", "[torch.randn(64, 100)]")
    assert got == "SAME", reason
    assert "output[1], of which rounding may change half and more" in report.left_out
