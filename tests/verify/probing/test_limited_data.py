"""Data with a domain of their own: numbers from 0 to 1, missing values, equal neighbours in order, sequences that have something
in common; and numbers that comparisons with a NaN lead to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mm32.verify.inputs import contents, variations
from mm32.verify.judging.draws import Recorder

Compare = Callable[..., tuple[str, str, Any]]
LOSS = "return torch.nn.functional.binary_cross_entropy(p, t, reduction='none').mean(1)"
LIMITED = "return -(t * p.log().clamp(min={0}) + (1 - t) * (1 - p).log().clamp(min={0})).mean(1)"
PROBABILITIES = "[torch.rand(48, 64), torch.rand(48, 64)]"
MEAN = "m = x.isnan().logical_not(); n = m.sum(1); return torch.where(n > 0, x.nan_to_num(0.0).sum(1) / n.clamp(min=1), 0.0)"
MISSING = "[torch.randn(64, 32).masked_fill(torch.rand(64, 32) < 0.1, float('nan'))]"
TIMES = "[torch.randn(32, 64), torch.rand(32, 64).sort(1).values]"
LATER = "return (x[:, None] * (t[:, None] >= t[..., None])).sum(2)"  # for each time, the sum of all that is not earlier
COMMON = "return (a == b).cumprod(1).sum(1)"  # the length of the beginning that two sequences share
PAIRS = "[(a := torch.randint(0, 9, (32, 64))), torch.where(torch.rand(32, 64) < 0.1, 9 - a, a)]"


def drawn(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("right", "wrong", "made", "arguments"),
    [
        (LOSS, LIMITED.format(-20), PROBABILITIES, "p, t"),
        (LOSS, "return -(t * p.log() + (1 - t) * (1 - p).log()).mean(1)", PROBABILITIES, "p, t"),
        (MEAN, "return x.nanmean(1)", MISSING, "x"),
        (LATER, "return x.flip(1).cumsum(1).flip(1)", TIMES, "x, t"),
        (COMMON, "return (a[:, :24] == b[:, :24]).cumprod(1).sum(1)", PAIRS, "a, b"),
    ],
    ids=["logarithms limited elsewhere", "logarithms without a limit", "rows without a value", "ties", "a beginning"],
)
def test_what_its_own_data_hide_is_different(
    right: str, wrong: str, made: str, arguments: str, verdict: Compare
) -> None:  # fmt: skip
    found, _, _ = verdict(right, wrong, made, arguments=arguments)
    assert found == "DIFFERENT"


@pytest.mark.parametrize(
    ("right", "honest", "made", "arguments"),
    [
        (LOSS, LIMITED.format(-100), PROBABILITIES, "p, t"),
        (MEAN, "return x.nanmean(1).nan_to_num(0.0)", MISSING, "x"),
        (LATER, "return x.flip(1).cumsum(1).flip(1).gather(1, torch.searchsorted(t, t))", TIMES, "x, t"),
        (COMMON, "d = (a != b).int(); return torch.where(d.any(1), d.argmax(1), a.shape[1])", PAIRS, "a, b"),
        # Beside a NaN, counting gives another rank than sorting.
        (
            "return (x[:, :, None] > x[:, None]).sum(2).float() / 64",
            "return torch.searchsorted(x.sort(1).values, x).float() / 64",
            "[torch.randn(32, 64)]",
            "x",
        ),
    ],
    ids=["limited logarithms", "a mean of what is there", "ties", "a beginning", "ranks"],
)
def test_an_honest_way_is_the_same(
    right: str, honest: str, made: str, arguments: str, verdict: Compare
) -> None:  # fmt: skip
    found, why, _ = verdict(right, honest, made, arguments=arguments)
    assert found == "SAME", why


def test_numbers_are_brought_into_their_domain() -> None:
    own = torch.rand(8, 16)
    inside = variations.within(own, 3 * torch.randn(8, 16))
    assert (float(inside.min()), float(inside.max())) == (0.0, 1.0)
    assert variations.within(own, own / 2) is not own
    assert torch.equal(variations.within(own, own / 2), own / 2)
    assert variations.within(own, own / 0) is own
    assert bool((variations.within(own, torch.full_like(own, 7.0)) == 0.5).all())


def test_ends_lie_in_limited_inputs_alone() -> None:
    values = [torch.rand(64, 64), torch.rand(64, 64)]
    first, second = variations.on_ends(values, drawn(), {0})
    assert second is values[1]
    assert isinstance(first, torch.Tensor)
    assert 300 < int((first == 0).sum()) < 800
    assert 300 < int((first == 1).sum()) < 800
    assert bool(((first >= 0) & (first <= 1)).all())
    with pytest.raises(contents.CannotVary):
        variations.on_ends(values, drawn(), {})


def test_missing_values_stay_where_they_are() -> None:
    t = torch.randn(64, 32)
    t[::3, 5] = torch.nan
    for name in ("zero-mean", "offset", "graded", "clustered", "planted"):
        (new,) = variations.fill(name, [t], drawn())
        assert isinstance(new, torch.Tensor)
        assert torch.equal(new.isnan(), t.isnan()), name
    (new,) = variations.fill("missing values", [t], drawn())
    assert isinstance(new, torch.Tensor)
    assert {0, 1, 2, 32} <= set((~new.isnan()).sum(1).tolist())
    (new,) = variations.fill("missing but two", [t], drawn())
    assert isinstance(new, torch.Tensor)
    assert int((~new.isnan()).sum(1).min()) == 2


def test_equal_neighbours_are_in_order() -> None:
    t = torch.rand(16, 64).sort(1, descending=True).values
    (new,) = variations.fill("equal neighbours", [t], drawn())
    assert isinstance(new, torch.Tensor)
    steps = new.diff(dim=1)
    assert bool((steps <= 0).all())
    assert bool((new[:, 0] == new[:, 1]).all())
    assert bool((new[:, -1] == new[:, -2]).all())
    assert 0.3 < float((steps == 0).double().mean()) < 0.5
    with pytest.raises(contents.CannotVary):
        variations.fill("equal neighbours", [torch.rand(16, 64)], drawn())


def test_another_draw_is_of_integers_that_are_alike() -> None:
    a, b, labels = torch.randint(0, 9, (8, 64)), torch.randint(0, 9, (8, 64)), torch.randint(0, 9, (8,))
    assert variations.alike([a, labels, b, a.float(), b.float()]) == [2]
    other = [torch.randint(0, 9, (8, 64), generator=drawn()) for _ in range(3)]
    _, _, new = variations.of_another_draw([a, labels, b], other, drawn())
    assert isinstance(new, torch.Tensor)
    taken = (new == other[2]).all(1)
    assert int(taken.sum()) == 4
    assert all(torch.equal(new[i].sort().values, b[i].sort().values) for i in range(8) if not taken[i])
    padded = torch.randint(1, 9, (8, 64))
    padded[:, 40:] = 0
    _, new = variations.of_another_draw([a, padded], other, drawn())
    assert torch.equal(new, other[1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "asks"),
    [
        (lambda x: torch.where(x > 0, x, 0.0), False),
        (lambda x: torch.where(x.isnan(), 0.0, x), True),
        (lambda x: torch.where(x.isfinite(), x, 0.0), True),
        (lambda x: x.nan_to_num(), True),
        (lambda x: x.nansum(), True),
        (lambda x: (x != x).sum(), True),
        (lambda x: (x == x.flip(0)).sum(), False),
    ],
)
def test_it_is_seen_whether_a_model_does_something_for_nan(
    call: Callable[[torch.Tensor], torch.Tensor], asks: bool
) -> None:
    with Recorder() as recorder:
        call(torch.randn(4, 4))
    assert recorder.asks_nan is asks
