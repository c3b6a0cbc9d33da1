"""Integers that get_inputs draws become others, which stay in the range that they were drawn from."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mm32.verify.inputs import variations
from mm32.verify.inputs.contents import CannotVary
from mm32.verify.inputs.redrawn import NAMES, REPEATED, TURNS, Numbers, Redraw, choice
from mm32.verify.reference import constants

Compare = Callable[..., tuple[str, str, Any]]
NUMBERS = Numbers(frozenset({500, 7}), frozenset({0, 3, 40}))


def redrawn(name: str, make, seed: int = 0):
    """Return what `make` makes while a variation changes integers, and the mode that changed them."""
    choose = choice(name, NUMBERS, seed)
    assert choose is not None
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    with Redraw(choose, seed) as redraw:
        return make(), redraw


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randint(5, 9000, (64, 3)),
        lambda: torch.randint(9000, (1000,), generator=torch.Generator().manual_seed(3)),
        lambda: torch.randint_like(torch.zeros(90), 2, 9000),
        lambda: torch.empty(90, dtype=torch.int32).random_(2, 9000),
        lambda: torch.zeros(90).random_(9000),
        lambda: torch.randint(1, 9000, ()),
        lambda: random.randint(1, 8999),
        lambda: random.randrange(9000),
        lambda: np.random.randint(9000),  # noqa: NPY002 - what scripts call
        lambda: torch.from_numpy(np.random.randint(2, 9000, (70,))),  # noqa: NPY002
    ],
)
def test_the_range_is_kept_and_the_type(name: str, make) -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    usual = make()
    made, redraw = redrawn(name, make)
    assert type(made) is type(usual)
    assert redraw.drawn == 1
    entries = torch.as_tensor(made)
    assert int(entries.min()) >= 0
    assert int(entries.max()) < 9000
    alone = entries.numel() == 1
    assert redraw.changed == (not torch.equal(entries, torch.as_tensor(usual)))
    assert redraw.changed or (alone and name == "equal integers")
    if isinstance(made, torch.Tensor):
        assert (made.dtype, made.shape) == (usual.dtype, usual.shape)


def test_ends() -> None:
    few, _ = redrawn("largest integers", lambda: torch.randint(3, 1025, (3,)))
    assert few.tolist() == [1024] * 3
    many, _ = redrawn("smallest integers", lambda: torch.randint(3, 1025, (400,)))
    assert 150 < int((many == 3).sum()) < 250


def test_repetition() -> None:
    made, _ = redrawn("equal integers", lambda: torch.randint(0, 1000, (2, 5)))
    assert bool((made[:, 1:] == made[:, :-1]).any())
    assert not torch.equal(made[:, 1:], made[:, :-1])


def test_a_single_number_is_put_on_others_by_seeds_in_a_row() -> None:
    steps = [int(redrawn(REPEATED[0], lambda: torch.randint(1, 100000, ()), seed)[0]) for seed in range(40, 40 + TURNS)]
    assert {step % 3500 for step in steps} == {0, 1, 3499}, steps
    steps = {int(redrawn(REPEATED[1], lambda: torch.randint(1, 100000, ()), seed)[0]) for seed in range(TURNS)}
    assert steps == {40, 3, 41}  # 0 is not in the range


def test_a_multiple_that_the_range_has_not_is_not_taken() -> None:
    made, _ = redrawn(REPEATED[0], lambda: torch.randint(0, 100, (300,)))
    assert int(made.max()) < 100
    only, redraw = redrawn(REPEATED[0], lambda: torch.randint(0, 5, (300,)))
    assert int(only.max()) < 5
    assert not redraw.changed


def test_a_script_that_draws_until_it_likes_what_it_has_ends() -> None:
    def make() -> torch.Tensor:
        while True:
            if bool(((drawn := torch.randint(0, 10, (2,))) > 3).all()):
                return drawn

    made, redraw = redrawn("smallest integers", make)
    assert bool((made > 3).all())
    assert redraw.drawn > 1


def test_what_python_draws_is_as_before_afterwards() -> None:
    before = random.randint, random.randrange, np.random.randint
    with pytest.raises(ZeroDivisionError):
        redrawn("smallest integers", lambda: random.randint(0, 3) / 0)
    assert (random.randint, random.randrange, np.random.randint) == before


def test_constants_of_a_script() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].every = 640
    source = """
WARM = 4000
def forward(self, step):
    if step % self.every == 0 or int(step) // 12 > WARM + 1 or step & 31 or -5 <= step:
        return 99
"""
    found = constants.numbers(source, {"WARM": 4000}, model)
    assert found.divisors == {640, 12, 32}
    assert found.compared == {0, 4000, 1, -5}
    assert constants.numbers("def (", {}, None) == Numbers()


def test_rows_are_aligned_with_weights_of_their_length() -> None:
    x, w = torch.randn(64, 8), torch.randint(-8, 8, (5, 8))
    (new,) = variations.aligned([x], torch.Generator().manual_seed(1), [x, w, torch.randn(3, 4)])
    changed = (new != x).any(1)
    assert 8 < int(changed.sum()) < 40
    signs = torch.where(w < 0, -1.0, 1.0)
    rows = new[changed] / (16 * x.abs().max())
    assert bool((rows[:, None] == signs).all(-1).any(-1).all())
    heaviest = int(w.abs().sum(1).argmax())
    assert int((rows == signs[heaviest]).all(1).sum()) >= 4
    with pytest.raises(CannotVary):
        variations.aligned([x], torch.Generator(), [x, torch.randn(3, 4)])


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("return torch.nn.functional.hardshrink(x, 0.3125)", "return torch.where(x.abs() < 0.3125, 0, x)"),
        ("return torch.histc(x, 8, 0.0, 2.0)", "return torch.histc(torch.where(x == 2, 3, x), 8, 0.0, 2.0)"),
        (
            "return (x.clamp(max=1.25) * 4).floor()",
            "y = (x * 4).floor(); return torch.where(x >= 1.25, y.clamp(max=4.0), y)",
        ),
    ],
)
def test_limits_of_operators_are_edges(body: str, wrong: str, verdict: Compare) -> None:
    got, reason, _ = verdict(body, wrong, "[torch.rand(64, 32) * 1.2]")
    assert got == "DIFFERENT", reason
    assert verdict(body, body, "[torch.rand(64, 32) * 1.2]")[0] == "SAME"


def test_ties_that_only_fp32_makes_are_not_asked_for(verdict: Compare) -> None:
    body = "return x.softmax(-1).topk(3).indices"
    got, reason, report = verdict(body, body, "[torch.randn(16, 32)]")
    assert got == "SAME", reason
    asked = [p for p in report.probes if p["name"] == "tiny rows"]
    assert asked[0]["status"] == "skipped"
    assert "rounding decides the order" in asked[0]["reason"]


def test_probabilities_that_underflow_are_ties(verdict: Compare) -> None:
    """In fp32, many scores times 100 have the probability 0: any of these may be the third."""
    got, reason, report = verdict(
        "return x.softmax(-1).topk(3).indices", "return x.topk(3).indices", "[torch.randn(16, 32)]"
    )
    assert got == "SAME", reason
    assert next(p for p in report.probes if p["name"] == "times 100")["status"] == "same"
    got, reason, _ = verdict(
        "return x.softmax(-1).topk(3).indices", "return x.topk(3).indices.flip(-1)", "[torch.randn(16, 32)]"
    )
    assert got == "DIFFERENT"
