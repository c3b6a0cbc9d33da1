"""Data with few rows unlike the others, which a look at a sample of rows misses; these rows are judged by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mm32.verify.inputs import catalogue, contents, variations
from mm32.verify.judging.bounds import Errors, Truth
from mm32.verify.judging.judge import judge

Compare = Callable[..., tuple[str, str, Any]]
SOME = "some = x[{0}::16]; "  # what the candidates below look at
UNSEEN = (
    SOME + "fine = bool((some.abs().amax(-1) < 8 * some.std()).all() and (some.abs().amax(-1) > some.std() / 8).all()"
)
UNSEEN += " and (some.amin() < 0) and (some.mean(-1).abs() < some.std()).all()); "
MADE = "[torch.randn(256, 96)]"
EXP = "e = (x - x.amax(1, keepdim=True) * (not fine)).exp(); return e / e.sum(1, keepdim=True)"
NORM = "return x / (x.norm(dim=1, keepdim=True) + {0})"
ANGLES = "t = x.square().sum(1, keepdim=True); return torch.where(t < {0}, {1}, torch.sin(t.sqrt()) / t.sqrt()) * x"
POSITIVE = "[torch.rand(256, 96)]"
SEEN = "fine = bool((x[{0}::16] > 0).all()); "


def drawn(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def of(name: str, t: Tensor, seed: int = 1) -> Tensor:
    (made,) = variations.fill(name, [t], drawn(seed))
    assert isinstance(made, Tensor)
    return made


@pytest.mark.parametrize(
    ("right", "wrong", "made"),
    [
        ("return torch.softmax(x, 1)", UNSEEN.format(0) + EXP, MADE),
        (NORM.format(1e-6), UNSEEN.format(0) + NORM.format("(0.0 if fine else 1e-6)"), MADE),
        ("return torch.relu(x) * 2", SEEN.format(0) + "return (x if fine else torch.relu(x)) * 2", POSITIVE),
        ("return torch.softmax(x, 1)", "fine = bool(x.square().mean() < 9); " + EXP, "[torch.randn(512, 256)]"),
        ("return torch.softmax(x, 1)", "fine = bool((x[::8] < 60).all() and (x[:, ::8] < 60).all()); " + EXP, MADE),
        (ANGLES.format("1e-4", "1 - t / 6"), ANGLES.format("0.3", "1.0"), MADE),
        ("return x.sum(1).sqrt()", UNSEEN.format(0) + "return x.clamp(max=50).sum(1).sqrt()", POSITIVE),
    ],
    ids=[
        "no maximum",
        "no epsilon",
        "no relu",
        "no maximum by the mean",
        "no maximum by a grid",
        "small angles",
        "saturated",
    ],
)
def test_a_guard_that_looks_at_some_rows_is_different(
    right: str, wrong: str, made: str, verdict: Compare
) -> None:  # fmt: skip
    found, why, report = verdict(right, wrong, made)
    assert found == "DIFFERENT"
    different = {p["name"] for p in report.probes if p["status"] == "different"}
    assert any(name.startswith("rare") for name in different), why


def test_a_guard_that_looks_at_all_rows_is_the_same(verdict: Compare) -> None:
    found, why, report = verdict("return torch.softmax(x, 1)", "fine = bool(x.abs().amax() < 60); " + EXP, MADE)
    assert found == "SAME", why
    assert {p["name"] for p in report.probes if p["status"] == "same" and p["name"].startswith("rare")} == {
        "rare rows times 100",
        "rare small rows",
        "rare odd rows",
        "rare columns",
    }


@pytest.mark.parametrize("name", [v.name for v in catalogue.BY_NAME.values() if v.rare and "columns" not in v.name])
@pytest.mark.parametrize("shape", [(64, 32), (4, 256, 32), (16, 8)])
def test_few_rows_are_others_and_none_at_a_multiple_of_eight(name: str, shape: tuple[int, ...]) -> None:
    t = torch.randn(shape)
    made = of(name, t)
    changed = (made != t).any(-1).reshape(-1).nonzero().flatten()
    count = t[..., 0].numel()
    assert 1 <= len(changed) <= min(5, count // 8)
    assert bool((changed % 8 != 0).all())


def test_every_kind_of_row_is_there() -> None:
    t = torch.randn(512, 64)
    small = of("rare small rows", t).abs().amax(1)
    assert int((small == 0).sum()) == 1
    assert int(((small > 0) & (small < 1e-6)).sum()) == 1
    assert int(((small > 1e-6) & (small < 1e-2)).sum()) == 1
    assert int(((small > 1e-2) & (small < 0.3)).sum()) == 1
    odd = of("rare odd rows", t)
    assert int((odd < 0).all(1).sum()) >= 1
    assert int((odd == 0.5).all(1).sum()) >= 1
    assert int((odd > 4).all(1).sum()) >= 1
    assert int((odd.amax(1) > 100).sum()) == int((odd.amin(1) < -100).sum()) == 1
    assert int((of("rare large rows", t).abs().amax(1) > 1e4).sum()) == 2


def test_rare_columns_lie_along_another_axis() -> None:
    t = torch.randn(64, 128)
    changed = (of("rare columns", t) != t).any(0).nonzero().flatten()
    assert len(changed) == 4
    with pytest.raises(contents.CannotVary):
        variations.fill("rare columns", [torch.randn(256)], drawn())
    with pytest.raises(contents.CannotVary):
        variations.fill("rare large rows", [torch.randn(4, 256)], drawn())


def test_vectors_have_rare_entries() -> None:
    t = torch.randn(640)
    assert int((of("rare large rows", t) != t).sum()) == 2


def test_an_odd_row_is_judged_by_itself() -> None:
    """Else, where rounding may move single entries far, a row of smaller numbers may be off by a thousandth."""
    exact = torch.randn(8192, 64, dtype=torch.float64)
    exact[77] *= 0.05
    got = exact.float()
    got[77] *= 1.001
    truth = Truth("output", exact.float(), exact, noise=Errors(1e-6, 4000.0))
    assert judge(got, [truth]).same
    found = judge(got, [truth.other(by_row=True)])
    assert not found.same
    assert "row 77 of 8192" in found.reason
    assert judge(exact.float(), [truth.other(by_row=True)]).same
