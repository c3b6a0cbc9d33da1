"""Integers and booleans of timed calls: never the same twice, and still what the model takes (integers.py)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mm32.verify.inputs import contents, integers, regrouped
from mm32.verify.inputs.pools import Pools
from support.verify.fixtures import Run

CPU = torch.device("cpu")


def pools(make: Callable[[], list[Tensor]], entries: int = 6) -> Pools:
    torch.manual_seed(0)
    return Pools([make() for _ in range(entries)], CPU)


def drawn(of: Pools, count: int) -> list[list[Tensor]]:
    """Return the tensors of `count` recipes, as a model gets them."""
    found = []
    for _ in range(count):
        recipe = of.recipe()
        flat = [torch.cat(pieces) for pieces in of.pieces(recipe)]
        again = [torch.cat(pieces) for pieces in of.pieces(recipe)]
        assert all(torch.equal(a, b) for a, b in zip(flat, again, strict=True))  # a recipe makes the same tensors again
        found.append([of._shaped(i, t) for i, t in enumerate(flat)])
    return found


def offsets() -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.long), torch.randint(1, 9, (40,)).cumsum(0)])


KEPT: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], bool]]] = {
    "indices": (lambda: torch.randint(0, 50, (300,)), lambda t: bool(((t >= 0) & (t < 50)).all())),
    "other ranges in rows": (
        lambda: torch.stack([torch.randint(0, 5, (300,)), torch.randint(0, 9000, (300,))]),
        lambda t: int(t[0].max()) < 5 <= int(t[1].max()),
    ),
    "bytes": (lambda: torch.randint(0, 256, (3, 20, 20), dtype=torch.uint8), lambda t: t.dtype == torch.uint8),
    "a mask": (lambda: torch.rand(20, 30) < 0.5, lambda t: t.dtype == torch.bool),
    "a transposed view": (lambda: torch.randint(0, 9, (20, 30)).T, lambda t: t.shape == (30, 20)),
    "sorted": (lambda: torch.randint(0, 40, (300,)).sort().values, lambda t: bool((t.diff() >= 0).all())),
    "sorted downwards": (
        lambda: torch.randint(1, 40, (60,)).sort(descending=True).values,
        lambda t: bool((t.diff() <= 0).all()),
    ),
    "masks of lengths": (
        lambda: torch.arange(30) < torch.randint(1, 30, (16, 1)),
        lambda t: bool((t.int().diff() <= 0).all()),
    ),
    "a permutation": (lambda: torch.randperm(200), lambda t: torch.equal(t.sort().values, torch.arange(200))),
    "one of each row": (
        lambda: torch.nn.functional.one_hot(torch.randint(0, 7, (50,)), 7),
        lambda t: bool((t.sum(1) == 1).all()),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_belongs_to_it_is_kept_and_no_two_calls_have_the_same(name: str) -> None:
    make, holds = KEPT[name]
    of = pools(lambda: [make()])
    made = [one for (one,) in drawn(of, 40)]
    assert all(holds(t) for t in made)
    assert len({t.contiguous().numpy().tobytes() for t in made}) >= 39


@pytest.mark.parametrize(
    "make", [lambda: torch.arange(20), offsets, lambda: torch.tensor(3), lambda: torch.full((9,), 4)]
)
def test_what_mixing_would_break_is_taken_as_it_is(make: Callable[[], Tensor]) -> None:
    torch.manual_seed(0)
    results = [[make()] for _ in range(6)]
    of = Pools(results, CPU)
    assert not of.kinds
    assert all(any(torch.equal(t, one) for (one,) in results) for (t,) in drawn(of, 10))


def test_what_lies_side_by_side_stays_together() -> None:
    """Tokens stay beside their labels, entry by entry, and a sequence beside its length, row by row."""

    def make() -> list[Tensor]:
        tokens = torch.randint(0, 1000, (24, 50))
        return [tokens, tokens * 2 + 1, tokens[:, :3].sum(1)]

    of = pools(make)
    assert [kind.shared for kind in of.kinds.values()] == [1, 1, 1]
    for tokens, labels, lengths in drawn(of, 10):
        assert torch.equal(labels, tokens * 2 + 1)
        assert torch.equal(lengths, tokens[:, :3].sum(1))
    pairs = pools(lambda: make()[:2])
    assert [kind.shared for kind in pairs.kinds.values()] == [2, 2]
    for tokens, labels in drawn(pairs, 10):
        assert torch.equal(labels, tokens * 2 + 1)


def test_rows_of_two_results_are_not_the_rows_of_either() -> None:
    """This is so for a tensor alone: a candidate that remembers the answer to a row hardly ever meets that row again."""
    of = pools(lambda: [torch.randint(0, 1000, (24, 50))])
    known = {row.numpy().tobytes() for pool in of.pools[0] for row in pool.view(24, 50)}
    made = {row.numpy().tobytes() for (t,) in drawn(of, 20) for row in t}
    assert not known & made


def test_kinds_of_few_entries() -> None:
    assert integers.kinds([[], []]) == []
    (kind,) = integers.kinds([[torch.zeros(0, 3, dtype=torch.long)]] * 2)
    assert kind.fixed


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize("name", KEPT)
def test_few_others_are_still_what_they_were(name: str, exchange: bool) -> None:
    make, kept = KEPT[name]
    torch.manual_seed(0)
    t = make()
    try:
        (new,) = regrouped.replaced([t], torch.Generator().manual_seed(1), exchange)
    except contents.CannotVary:
        assert name in ("sorted", "sorted downwards", "masks of lengths")
        return
    assert isinstance(new, Tensor)
    assert kept(new)
    assert (new.dtype, new.stride()) == (t.dtype, t.stride())
    assert 0 < float((new != t).double().mean()) < 0.3
    assert torch.equal(new.flatten()[:1], t.flatten()[:1])


def test_inputs_that_are_not_always_the_same_stay() -> None:
    one, other, x = torch.randint(0, 9, (64,)), torch.randint(0, 9, (64,)), torch.rand(64)
    new = regrouped.replaced([one, other, x], torch.Generator().manual_seed(1), steady=[1, 2])
    assert new[0] is one
    assert not torch.equal(new[1], other)  # type: ignore[arg-type]
    assert new[2] is x


@pytest.mark.parametrize(
    "t",
    [
        torch.ones(9, 9, dtype=torch.bool).tril(),
        (torch.arange(20)[:, None] - torch.arange(20)).abs() < 3,
        torch.tensor([[5, 3, 7, 2, 4, 1, 0, 0, 0], [5, 3, 7, 2, 4, 1, 9, 8, 0]]),
        torch.eye(9, dtype=torch.long),
    ],
    ids=["causal", "a band", "padding", "symmetric"],
)
def test_what_belongs_together_is_not_changed(t: Tensor) -> None:
    with pytest.raises(contents.CannotVary):
        regrouped.replaced([t], torch.Generator().manual_seed(1))


def test_calls_of_windows_get_results_that_no_call_had() -> None:
    """Integers and small floats stay as get_inputs made them, large floats are rotated; constants are mixed as ever."""
    table = torch.rand(64)

    def make() -> list[Tensor]:
        return [
            torch.randint(0, 1 << 40, (1,)),
            torch.rand(3),
            torch.rand(50),
            torch.randint(0, 1 << 40, (8, 4)),
            table,
        ]

    of, made = pools(make), []

    def fresh(count: int) -> list[list[Tensor]]:
        made.extend([t.reshape(-1) for t in make()] for _ in range(count - 1))
        return made[1 - count :]

    of.fresh = fresh
    found = [[torch.cat(pieces) for pieces in of.pieces(recipe)] for recipe in of.recipes(9)]
    assert (len(found), len(made)) == (9, 8)
    own = {tuple(of_one[3].tolist()): of_one for of_one in made}
    same = [(call, own[tuple(call[3].tolist())]) for call in found if tuple(call[3].tolist()) in own]
    assert len(same) == 8  # the ninth is mixed from these
    for call, result in same:
        assert all(torch.equal(a, b) for a, b in zip(call[:2], result[:2], strict=True))
        assert torch.equal(call[2].sort().values, result[2].sort().values)
        assert torch.isin(call[4], table).all()
    assert sum(not torch.equal(call[2], result[2]) for call, result in same) >= 6
    assert not torch.equal(found[0][4], found[1][4])


def test_integers_that_are_the_same_each_time_have_others_in_each_call() -> None:
    graph, offsets_, causal = torch.randint(0, 64, (2, 300)), offsets(), torch.ones(16, 16).tril() > 0

    def make() -> list[Tensor]:
        return [torch.randn(64, 4), graph.clone(), offsets_.clone(), causal.clone()]

    of = pools(make)
    of.fresh = lambda count: [[t.reshape(-1) for t in make()] for _ in range(count)]
    recipes = of.recipes(5)
    found = [torch.cat(list(of.pieces(recipe))[1]).view(2, 300) for recipe in recipes]
    assert all(int(one.min()) >= 0 and int(one.max()) < 64 for one in found)
    # In one call of a hundred, all entries that are drawn anew come out as they were.
    assert len({tuple(one.reshape(-1).tolist()) for one in [*found, graph]}) >= 4, "another one in each call"
    assert all(int((one != graph).sum()) <= 300 / 8 for one in found), "few are others"
    assert of.always_same() == [2, 3], "what is in order, and blocks of booleans, stay"
    of.leave_structure()
    of.fresh = None
    assert all(torch.equal(call[1], graph) for call in drawn(of, 3)), "a model that wants these has them"


def test_a_small_constant_keeps_no_other_integers_from_being_taken_as_they_are() -> None:
    lengths = torch.tensor([3, 9, 4, 9])

    def make() -> list[Tensor]:
        return [torch.randint(0, 999, (4, 50)), lengths.clone()]

    for _ in range(20):
        of = pools(make)
        assert of.varies == [True, True]
        assert of.keep_constants()
        assert not of.keep_constants()
        assert list(of.kinds) == [0], "the others are mixed as before"
        assert all(torch.equal(call[1], lengths) for call in drawn(of, 2))


def test_what_every_call_has_alike_is_known() -> None:
    same = torch.randn(8, 8)
    same = same + same.mT

    def make() -> list[object]:
        return [torch.randn(16, 4), same.clone(), 3, torch.randint(0, 9, (40,)), offsets(), torch.tensor([1, 2])]

    of = Pools([make() for _ in range(4)], CPU)
    assert of.always_same() == [1], "not what is drawn anew, and no number or so"


def test_the_line_says_which_inputs_timed_calls_have_alike(run: Run) -> None:
    """Input 1 is symmetric, and the same matrix each time: there is no other one of its kind to mix it with."""
    right = """
import torch
from torch import nn

MATRIX = torch.randn(48, 48, generator=torch.Generator().manual_seed(1))

class {name}(nn.Module):
    def forward(self, x, a):
        return x @ a

def get_inputs():
    return [torch.rand(64, 48), MATRIX + MATRIX.mT]
"""
    report = run(right.format(name="ModelNew"), reference=right.format(name="Model"))
    assert report.verdict.same, report.reason
    assert "times with input 1 other than the same in every call" in report.left_out
