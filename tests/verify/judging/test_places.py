"""The guard names what would end a GPU's context: it raises where, and only where, a CPU's operators do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mm32.verify.judging.places import GUARDED, Guard

TABLE, VALUES = torch.randn(5, 4), torch.randn(3, 4)
SCORES, PROBABILITIES = torch.randn(3, 5), torch.rand(3, 4)
# Calls that look something up along an axis of 5 by three integers, and whether -1 is a valid place for them.
LOOKUPS: dict[str, tuple[Callable[[Tensor], object], bool]] = {
    "embedding": (lambda i: F.embedding(i, TABLE), False),
    "embedding_bag": (lambda i: F.embedding_bag(i, TABLE, torch.tensor([0, 2])), False),
    "index": (lambda i: TABLE[i], True),
    "index of the second axis": (lambda i: TABLE.T[:, i], True),
    "index beside a mask": (lambda i: torch.zeros(2, 3, 5)[torch.ones(2, 3, dtype=torch.bool), i.repeat(2)], True),
    "index of pairs": (lambda i: torch.zeros(3, 5)[torch.arange(3), i], True),
    "index_put": (lambda i: TABLE.clone().index_put((i,), VALUES), True),
    "index_put in place": (lambda i: TABLE.clone().__setitem__(i, VALUES), True),
    "index_select": (lambda i: TABLE.index_select(0, i), False),
    "index_select of the last axis": (lambda i: TABLE.T.index_select(-1, i), False),
    "index_add": (lambda i: TABLE.clone().index_add_(0, i, VALUES), False),
    "index_copy": (lambda i: TABLE.index_copy(0, i, VALUES), False),
    "index_fill": (lambda i: TABLE.index_fill(0, i, 1.0), True),
    "gather": (lambda i: TABLE.gather(0, i[:, None]), False),
    "scatter": (lambda i: TABLE.scatter(0, i[:, None], 1.0), False),
    "scatter_add": (lambda i: TABLE.scatter_add(0, i[:, None], VALUES), False),
    "scatter_reduce": (lambda i: TABLE.scatter_reduce(0, i[:, None], VALUES, "amax"), False),
    "take": (lambda i: torch.take(TABLE[:, 0], i), True),
    "put": (lambda i: torch.zeros(5).put_(i, VALUES[:, 0]), True),
    "one_hot": (lambda i: F.one_hot(i, 5), False),
    "cross_entropy": (lambda i: F.cross_entropy(SCORES, i), False),
    "cross_entropy of pictures": (lambda i: F.cross_entropy(SCORES[..., None, None], i[:, None, None]), False),
    "multi_margin_loss": (lambda i: F.multi_margin_loss(SCORES, i), False),
}
LIMITED: dict[str, Callable[[Tensor], object]] = {
    "bernoulli": torch.bernoulli,
    "bernoulli in place": lambda p: torch.empty(3, 4).bernoulli_(p),
    "binomial": lambda p: torch.binomial(torch.full((3, 4), 9.0), p),
    "binary_cross_entropy": lambda p: F.binary_cross_entropy(p, torch.ones(3, 4)),
    "multinomial": lambda p: torch.multinomial(p, 2, replacement=True),
    "poisson": torch.poisson,
}


def guarded(call: Callable[[Tensor], object], given: Tensor) -> str:
    """Return what the guard says about a call; empty if it lets the call pass."""
    try:
        with Guard():
            call(given)
    except (IndexError, ValueError, RuntimeError) as error:
        own = (
            "out of bounds for a dimension of",
            "has to be f",
            "of a row are all 0",
            "Class values must be",  # one_hot's own
        )
        if any(said in str(error) for said in own):
            return str(error)
        raise
    return ""


def raises(call: Callable[[Tensor], object], given: Tensor) -> bool:
    try:
        call(given)
    except (IndexError, RuntimeError):
        return True
    return False


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_place_beyond_the_end_is_said(name: str) -> None:
    call, negative = LOOKUPS[name]
    for inside in ([0, 4, 2], [3, 3, 3]):
        assert guarded(call, torch.tensor(inside)) == ""
    for outside in ([0, 5, 2], [-6, 0, 1], [1 << 40, 1, 2]):
        assert guarded(call, torch.tensor(outside)) != "", outside
        assert raises(call, torch.tensor(outside)), outside
    assert (guarded(call, torch.tensor([0, -1, 2])) == "") == negative


def test_what_is_no_place_is_none() -> None:
    assert guarded(lambda i: F.cross_entropy(SCORES, i), torch.tensor([0, -100, 4])) == ""
    assert guarded(lambda i: TABLE[i], torch.tensor([True, False, True, True, False])) == ""
    assert guarded(lambda i: TABLE[i], torch.empty(0, dtype=torch.int64)) == ""
    assert guarded(lambda i: F.embedding_bag(i, TABLE, torch.tensor([0, 9])), torch.tensor([1, 2, 3])) != ""


@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("bad", [-0.5, float("nan"), float("inf")])
def test_a_number_that_is_no_probability_is_said(name: str, bad: float) -> None:
    call, p = LIMITED[name], PROBABILITIES.clone()
    assert guarded(call, p) == ""
    p[1, 2] = bad
    assert guarded(call, p) != ""
    # A CPU does not raise for the other cases: it draws something.
    if not (name == "poisson" and bad != -0.5) and name != "binomial":
        assert raises(call, p)


def test_the_numbers_that_nothing_is_drawn_by_are_said() -> None:
    assert "all 0" in guarded(LIMITED["multinomial"], torch.zeros(3, 4))
    with Guard():
        torch.empty(4).bernoulli_(0.5)
        torch.bernoulli(torch.empty(4), 0.25)


def test_every_guarded_operator_is_one_of_torchs() -> None:
    assert all(hasattr(torch.ops.aten, name) for name in GUARDED)
