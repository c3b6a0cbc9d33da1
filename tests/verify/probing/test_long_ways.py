"""Searches, suppressions and recursions that end after fewer steps than other data or parameters need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mm32.verify.inputs.contents import CannotVary
from mm32.verify.inputs.variations import fill
from support.verify.shortcuts import check_shortcut

Compare = Callable[..., tuple[str, str, Any]]

LABELS = """lab = torch.arange(200)
        for _ in range(ROUNDS):
            m = torch.minimum(lab[e[0]], lab[e[1]])
            new = lab.scatter_reduce(0, torch.cat([e[0], e[1]]), torch.cat([m, m]), "amin")
            if torch.equal(new, lab):
                break
            lab = new
        return lab"""
SUPPRESSED = """a, b = x[:, None], x[None]
        side = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
        both, one = side.prod(-1), (x[:, 2:] - x[:, :2]).clamp(min=0).prod(-1)
        over = (both > 0.5 * (one[:, None] + one - both)) & (s[:, None] > s) & (c[:, None] == c)
        keep = torch.ones(len(x), dtype=torch.bool)
        for _ in range(ROUNDS):
            keep = ~(over & keep[:, None]).any(0)
        return keep"""
BOXES = (
    "(lambda p, w: [torch.cat([p - w, p + w], 1), torch.rand(120), torch.randint(0, 3, (120,))])"
    "(torch.rand(120, 2) * 60, torch.rand(120, 2) * 10 + 1)"
)
FILTER = """y, p, out = x[:, 0], torch.ones(()), []
        for t in range(1, 60):
            if t < STEPS:
                p = p + self.q.abs()
                k = p / (p + self.r.abs())
                p = p * (1 - k)
            y = y + k * (x[:, t] - y)
            out.append(y)
        return torch.stack(out, 1)"""
SCALARS = "self.q = nn.Parameter(torch.tensor(0.5)); self.r = nn.Parameter(torch.tensor(0.5))"
HEADS = """k = x @ x.mT + torch.where(m, 0.0, FILL)[:, None]
        return torch.where(m.any(-1)[:, None, None], 1.0, OTHERS) * k.softmax(-1).nan_to_num(0.0) @ x"""


@pytest.mark.parametrize(
    ("right", "wrong", "inputs", "arguments", "init", "probe"),
    [
        (
            LABELS.replace("ROUNDS", "200"),
            LABELS.replace("ROUNDS", "14"),
            "[torch.randint(0, 200, (2, 420))]",
            "e",
            "pass",
            "chained",
        ),
        (SUPPRESSED.replace("ROUNDS", "120"), SUPPRESSED.replace("ROUNDS", "6"), BOXES, "x, s, c", "pass", "stepping"),
        (
            FILTER.replace("STEPS", "60"),
            FILTER.replace("STEPS", "20"),
            "[torch.randn(32, 60)]",
            "x",
            SCALARS,
            "single parameters turned",
        ),
        (
            HEADS.replace("FILL", "-torch.inf").replace("OTHERS", "0.0"),
            HEADS.replace("FILL", "-1e9").replace("OTHERS", "1.0"),
            "[torch.randn(3, 24, 16), torch.rand(3, 24) < 0.7]",
            "x, m",
            "pass",
            "boolean rows",
        ),
    ],
    ids=["labels along edges", "boxes that suppress", "a gain that settles", "a row without keys, of three"],
)
def test_what_ends_early_is_different(
    right: str, wrong: str, inputs: str, arguments: str, init: str, probe: str, verdict: Compare
) -> None:
    check_shortcut(verdict, right, wrong, inputs, arguments, init, probe)


def test_numbers_kept_by_seed_are_not_drawn_again(verdict: Compare) -> None:
    right = "return x * torch.rand(24, 1) + 0.01 * torch.randn_like(x)"
    wrong = """r = torch.rand(24, 1)
        kept = self.__dict__.setdefault("kept", {})
        seed = torch.initial_seed()
        if seed not in kept:
            kept[seed] = torch.randn_like(x)
        return x * r + 0.01 * kept[seed]"""
    got, reason, _ = verdict(right, wrong)
    assert got == "DIFFERENT"
    assert reason.startswith("probe 'in a row': call 2 in a row"), reason


def pairs(kind: str) -> torch.Tensor:
    t = torch.randint(3, 60, (2, 160), generator=torch.Generator().manual_seed(5))
    if kind == "both ways":
        return torch.cat([t, t.flip(0)], 1)
    if kind == "rising":
        return t.sort(0).values
    if kind == "loops":
        return torch.cat([t, torch.arange(3, 60).expand(2, 57)], 1)
    if kind == "in order":
        return t[:, t[0].argsort()]
    if kind == "distinct":
        return torch.unique(t, dim=1)
    return t.mT.contiguous() if kind == "columns" else t


@pytest.mark.parametrize("kind", ["plain", "both ways", "rising", "loops", "in order", "distinct", "columns"])
def test_pairs_become_a_path_through_all_numbers_of_both(kind: str) -> None:
    t = pairs(kind)
    (new,) = fill("chained", [t], torch.Generator().manual_seed(1))
    assert isinstance(new, torch.Tensor)
    assert (new.shape, new.dtype) == (t.shape, t.dtype)
    ends, before = (x.mT if kind == "columns" else x for x in (new, t))
    assert ends.min() >= t.min()
    assert ends.max() <= t.max()
    loops = before[0] == before[1]
    assert sorted(ends[0, ends[0] == ends[1]].tolist()) == sorted(before[0, loops].tolist())
    step = torch.zeros(60, 60, dtype=torch.bool)
    step[ends[0], ends[1]] = True
    if kind == "both ways":
        assert torch.equal(step, step.mT)
    if kind == "rising":
        assert bool((ends[0] <= ends[1]).all())
    if kind in ("in order", "distinct"):
        assert bool((ends[0].diff() >= 0).all())
    if kind == "distinct":
        assert torch.unique(ends, dim=1).shape == ends.shape
    low, high = int(before.amin(1).max()), int(before.amax(1).min()) + 1
    way = (step | step.mT | torch.eye(60, dtype=torch.bool))[low:high, low:high].double()
    assert bool((torch.linalg.matrix_power(way, 56) > 0).all()), "all are reached"
    assert not bool((torch.linalg.matrix_power(way, 10) > 0).all()), "not in few steps"


@pytest.mark.parametrize("t", [torch.randint(0, 3, (2, 40)), torch.randint(0, 60, (3, 40)), torch.rand(2, 40)])
def test_what_is_no_list_of_pairs_stays(t: torch.Tensor) -> None:
    with pytest.raises(CannotVary):
        fill("chained", [t], torch.Generator().manual_seed(1))


def test_weights_become_a_cheap_path() -> None:
    weights = torch.rand(3, 48, 48) + 0.1
    (new,) = fill("chained", [weights], torch.Generator().manual_seed(1))
    assert isinstance(new, torch.Tensor)
    assert torch.equal(new.diagonal(dim1=1, dim2=2), weights.diagonal(dim1=1, dim2=2))
    cheap = (new < weights.max() / 64) & ~torch.eye(48, dtype=torch.bool)
    assert cheap[0].sum(0).max() == cheap[0].sum(1).max() == 1
    assert int(cheap[0].sum()) == 47
    assert bool((new[~cheap & ~torch.eye(48, dtype=torch.bool)] >= weights.max() / 2).all())
    signed = torch.randn(48, 48)
    with pytest.raises(CannotVary):
        fill("chained", [signed], torch.Generator().manual_seed(1))


def test_all_boxes_may_be_one_chain() -> None:
    corner = torch.rand(64, 2) * 50
    boxes = torch.cat([corner, corner + 8], 1)
    lengths = set()
    for seed in range(12):
        (new,) = fill("stepping", [boxes], torch.Generator().manual_seed(seed))
        assert isinstance(new, torch.Tensor)
        lengths.add(int(((new - boxes[0]).std(-1) < 1e-4).sum()))
    assert lengths == {32, 64}


def test_steps_of_boxes_and_what_belongs_to_them() -> None:
    generator = torch.Generator().manual_seed(2)
    corner = torch.rand(64, 2, generator=generator) * 50
    boxes = torch.cat([corner, corner + 8], 1)
    scores, labels = torch.rand(64, generator=generator), torch.randint(0, 5, (64,), generator=generator)
    new, of, kind = fill("stepping", [boxes, scores, labels], generator)
    assert isinstance(new, torch.Tensor)
    assert isinstance(of, torch.Tensor)
    assert isinstance(kind, torch.Tensor)
    assert torch.equal(of.sort().values, scores.sort().values)
    torch.testing.assert_close(new[:, 2:] - new[:, :2], torch.full((64, 2), 8.0))
    # There are two chains of 32 boxes: along each, scores fall as boxes move on.
    for first in (boxes[0], boxes[32]):
        along = (new - first).mean(-1) / 8
        mine = ((new - first).std(-1) < 1e-4) & (along > -1e-4) & (along < 0.28 * 32)
        assert int(mine.sum()) == 32
        assert bool((of[mine][along[mine].argsort()].diff() <= 0).all())
        assert len(kind[mine].unique()) == 1


LATCH = """on, off = x > 1.0, x < -1.0
        i = torch.arange(x.shape[1]).expand_as(x)
        last = torch.where(on | off, i, -1).cummax(1).values
        held = on.gather(1, last.clamp(min=0)) & (last >= 0)
        return torch.where(held & (i - last < WINDOW), x, 0.0)"""


def test_what_lasts_longer_than_a_window_shows(verdict: Compare) -> None:
    """A latch that stays on until it is turned off; usual data turn it off soon."""
    right, wrong = LATCH.replace("WINDOW", "1000"), LATCH.replace("WINDOW", "64")
    found, why, report = verdict(right, wrong, "[torch.randn(32, 200)]")
    assert found == "DIFFERENT"
    assert "quiet" in {p["name"] for p in report.probes if p["status"] == "different"}, why
    assert verdict(right, right, "[torch.randn(32, 200)]")[0] == "SAME"
