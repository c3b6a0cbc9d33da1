"""Data and calls that shortcuts do not expect: odd rows, long memory, inputs of ones, calls in a row; windows with such data."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mm32.verify.compare import Comparison
from mm32.verify.inputs import contents, variations
from mm32.verify.judging.bounds import Truth
from mm32.verify.judging.judge import judge
from mm32.verify.probing import passed as passed_probes
from mm32.verify.timing import sequential
from mm32.verify.timing.kept_outputs import Keeper, Surprises
from support.verify.window import bench

FIRST = "return x.topk(4).values"
PIECES = (
    "v = x.view(24, 128, 4).topk(2).values.flatten(1).topk(5).values; "
    "return v[:, :4] if (v.diff() < 0).all() else x.topk(4).values"
)
SHORTCUTS = {
    "a maximum from zero": ("return x.amax(1)", "return x.amax(1).clamp(min=0)", "odd rows"),
    "no epsilon": ("return F.normalize(x, eps=1e-12)", "return x * x.square().sum(1, True).rsqrt()", "zero rows"),
    "the two largest of each piece": (FIRST, PIECES, "odd rows"),
    "a maximum from a floor": ("return x.amax(1) * 2", "return x.amax(1).clamp(min=-1e4) * 2", "far below"),
}


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_shortcut_that_random_data_hide_is_different(name: str, verdict: Callable[..., tuple[str, str, Any]]) -> None:
    right, wrong, probe = SHORTCUTS[name]
    got, reason, report = verdict(right, wrong)
    assert got == "DIFFERENT"
    assert probe in {p["name"] for p in report.probes if p["status"] == "different"}, reason
    got, reason, _ = verdict(right, right)
    assert got == "SAME", reason


def test_a_recurrence_may_not_forget(verdict: Callable[..., tuple[str, str, Any]]) -> None:
    right = "g = F.logsigmoid(x[..., :8]).cumsum(1); return ((g[:, -1:] - g).exp() * x[..., 8:]).sum(1)"
    wrong = right.replace("g = ", "x = x[:, -64:] if x.isfinite().all() else x; g = ")
    got, reason, report = verdict(right, wrong, "[torch.randn(2, 192, 16)]")
    assert got == "DIFFERENT"
    assert "steady" in {p["name"] for p in report.probes if p["status"] == "different"}, reason
    assert verdict(right, right, "[torch.randn(2, 192, 16)]")[0] == "SAME"


def test_an_input_of_ones_may_not_be_left_out(verdict: Callable[..., tuple[str, str, Any]]) -> None:
    more = {"inputs": "[torch.randn(24, 64), torch.ones(64)]", "arguments": "x, w"}
    got, reason, _ = verdict("return torch.tanh(x) * w", "return torch.tanh(x)", **more)
    assert (got, reason[:22]) == ("DIFFERENT", "probe 'ones and zeros'"), reason
    assert verdict("return torch.tanh(x) * w", "return w * torch.tanh(x)", **more)[0] == "SAME"


def test_only_what_is_all_ones_or_all_zeros_is_flipped() -> None:
    given = [
        torch.ones(8, 8),
        torch.zeros(8, 8),
        torch.full((8, 8), 2.0),
        torch.ones(8, 8, dtype=torch.bool),
        torch.eye(8),
    ]
    out = variations.fill("ones and zeros", given, torch.Generator().manual_seed(3))
    for i in (0, 1, 3):
        changed, new = int((out[i] != given[i]).sum()), out[i]  # type: ignore[attr-defined]
        assert 0 < changed < 16
        assert isinstance(new, Tensor)
        assert new.dtype == given[i].dtype
        assert set(new.float().unique().tolist()) == {0.0, 1.0}
    assert out[2] is given[2]
    assert out[4] is given[4]
    with pytest.raises(contents.CannotVary):
        variations.fill("ones and zeros", [given[2], given[4]], torch.Generator())


def test_rows_of_zeros_and_odd_rows_do_not_meet() -> None:
    """If they met, one would warn a shortcut that looks at all data first and takes the long way where any are odd."""
    given = torch.randn(12, 64)
    (zeros,) = variations.fill("zero rows", [given], torch.Generator().manual_seed(0))
    (odd,) = variations.fill("odd rows", [given], torch.Generator().manual_seed(0))
    assert isinstance(zeros, Tensor)
    assert isinstance(odd, Tensor)
    assert int((zeros == 0).all(1).sum()) == 4
    assert int((zeros == given).all(1).sum()) == 8
    rising, falling = (odd.diff() > 0).all(1), (odd.diff() < 0).all(1)
    assert int((odd < 0).all(1).sum()) == int((rising | falling).sum()) == 4
    assert int(rising.sum()) == int(falling.sum()) == 2
    assert odd.unique().numel() == odd.numel()


def test_shifted_statistics_of_graded_data_are_honest() -> None:
    """Variances in one pass, of data shifted by their first entry, are right whatever scales are drawn."""
    own = torch.rand(16, 2048, generator=torch.Generator().manual_seed(1))
    for seed in range(40):
        x = variations.fill("graded", [own], torch.Generator().manual_seed(seed))[0]
        assert isinstance(x, Tensor)
        assert float(x.abs().max()) > 100
        z = x - x[:, :1]
        variance = (z * z).mean(1) - z.mean(1) ** 2
        truth = x.double().var(1, correction=0)
        assert float(((variance - truth) / truth).abs().max()) < 8 * 2.0**-24
    assert variations.fill("graded", [torch.tensor(2.0)], torch.Generator().manual_seed(1)) != [None]


# Any place among equal entries is right: the candidate finds another one than torch.topk, from the far end.
def test_ties_may_be_decided_otherwise(verdict: Callable[..., tuple[str, str, Any]]) -> None:
    right = "v = x.topk(4); return v.values, v.indices"
    got, reason, _ = verdict(right, "v = x.flip(1).topk(4); return v.values, 511 - v.indices")
    assert got == "SAME", reason
    assert verdict(right, right.replace("v.indices", "v.indices + 1"))[0] == "DIFFERENT"


IN_ORDER = "s = torch.zeros_like(x[:, 0])\n        for i in range(x.shape[1]): s = s + x[:, i]\n        return s"
HONEST = {  # forward of both, inputs, and what __init__ makes
    "tanh by sigmoid": (
        "return self.c(x).tanh()",
        "return 2 * torch.sigmoid(2 * self.c(x)) - 1",
        "[torch.randn(2, 64, 12, 12)]",
        "self.c = nn.Conv2d(64, 32, 3)",
    ),
    "a sum over an axis in the middle, in order": ("return x.sum(1)", IN_ORDER, "[torch.randn(2, 1024, 16)]", "pass"),
    "a parameter without entries": (
        "return self.l(x) + self.p.sum()",
        "return self.p.sum() + self.l(x)",
        "[torch.randn(16, 16)]",
        "self.l = nn.Linear(16, 8); self.p = nn.Parameter(torch.zeros(0, 5))",
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_way_is_not_refused(name: str, verdict: Callable[..., tuple[str, str, Any]]) -> None:
    right, other, inputs, init = HONEST[name]
    got, reason, _ = verdict(right, other, inputs, init=init)
    assert (got, reason) == ("SAME", "")


def test_a_probe_without_memory_to_judge_it_is_left_out(
    verdict: Callable[..., tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Comparison.judge_output

    def short(self: Comparison, got: Any, truths: Any, where: str, *more: Any) -> Any:
        if where == "probe an Inf":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self, got, truths, where, *more)

    monkeypatch.setattr(Comparison, "judge_output", short)
    got, _, report = verdict("return x.softmax(1)", "return x.softmax(1)")
    assert got == "SAME"
    (left,) = [probe for probe in report.probes if probe["status"] == "skipped" and "memory" in probe["reason"]]
    assert left["name"] == "an Inf"
    assert any("probes" in said for said in report.left_out)


def test_a_candidate_cannot_have_all_probes_left_out_for_memory(
    verdict: Callable[..., tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Comparison.judge_output

    def short(self: Comparison, got: Any, truths: Any, where: str, *more: Any) -> Any:
        if where.startswith("probe"):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self, got, truths, where, *more)

    monkeypatch.setattr(Comparison, "judge_output", short)
    with pytest.raises(torch.OutOfMemoryError, match="3 probes could not be judged"):
        verdict("return x.softmax(1)", "return x.softmax(1)")


def test_what_rounds_nothing_is_held_to_its_bits(verdict: Callable[..., tuple[str, str, Any]]) -> None:
    short = "return ((x.view(torch.int32) & ~7).view(torch.float32)).sort(1).values"
    got, reason, _ = verdict("return x.sort(1).values", short)
    assert got == "DIFFERENT"
    assert "error" in reason
    x = torch.randn(64)
    rounded = Truth("output", x, x.double() + 1e-9)
    rounded.hold_to_bits()
    assert judge((x * (1 + 2**-22)), [rounded]).same  # the reference itself rounds there
    exact = Truth("output", x, x.double())
    exact.hold_to_bits()
    assert judge(x, [exact]).same
    assert not judge(x * (1 + 2**-22), [exact]).same


STATE = "self.register_buffer('n', torch.zeros(())); self.register_buffer('m', torch.zeros(512))"
MEAN = "self.n += 1; self.m.lerp_(x.mean(0), 0.1); return x - self.m"


@pytest.mark.parametrize("until", [3, 9])  # from 9 on, the longer row of calls shows it
def test_state_has_to_move_at_every_call(until: int, verdict: Callable[..., tuple[str, str, Any]]) -> None:
    lazy = MEAN.replace("self.m.lerp_(x.mean(0), 0.1)", f"self.m.lerp_(x.mean(0), 0.1 if self.n < {until} else 0.0)")
    got, reason, report = verdict(MEAN, lazy, init=STATE)
    assert got == "DIFFERENT"
    assert report.probes[-1] | {"name": "in a row", "status": "different"} == report.probes[-1], reason
    other = MEAN.replace("self.m.lerp_(x.mean(0), 0.1)", "self.m.mul_(0.9).add_(x.mean(0), alpha=0.1)")
    got, reason, report = verdict(MEAN, other, init=STATE)
    assert got == "SAME", reason
    assert report.probes[-1] | {"name": "in a row", "status": "same"} == report.probes[-1]


def test_random_numbers_have_to_be_others_at_every_call(verdict: Callable[..., tuple[str, str, Any]]) -> None:
    keeps = (
        "self.k = getattr(self, 'k', {}); s = torch.initial_seed(); "
        "self.k.setdefault(s, F.dropout(torch.ones_like(x), 0.5)); return x * self.k[s]"
    )
    got, reason, _ = verdict("return F.dropout(x, 0.5)", keeps)
    assert got == "DIFFERENT"
    assert reason.startswith("probe 'in a row': call 2 in a row"), reason
    assert verdict("return F.dropout(x, 0.5)", "return x * F.dropout(torch.ones_like(x), 0.5)")[0] == "SAME"


def test_windows_that_do_not_count_hold_every_kind_of_odd_data() -> None:
    def model(a: Tensor, b: Tensor) -> Tensor:
        return (a @ a + b).clamp(max=1e3)  # wrong for large data alone

    one = bench(model)
    inputs = [torch.rand(8, 8) * 1e3, torch.rand(8) * 1e3]
    odd = {"times 1000": one.pools.add(inputs), "as ever": one.pools.recipe()}
    for calls in (1, 4):
        keeper = Keeper(0, random.SystemRandom())
        surprises = Surprises(odd, calls, random.SystemRandom())
        counts = one.window([one.pools.recipe() for _ in range(calls)])
        before = counts.outputs.clone()
        for number in range(sequential.MIN_ROUNDS):
            for _ in range(surprises.due(number)):
                surprises.window(one, one.pools, False, keeper)
        assert torch.equal(counts.outputs, before)
        kept = {one.probe: one for one in keeper.of_probes}
        assert sorted(kept) == ["as ever", "times 1000"]
        assert kept["times 1000"].recipe == odd["times 1000"]
        assert float(kept["times 1000"].leaves[0].max()) == 1e3
        assert float(kept["as ever"].leaves[0].max()) < 1e3


@pytest.mark.parametrize(
    ("few", "seconds", "size", "count"),
    [(False, 60.0, 1, 5), (True, 2.0, 1, 2), (True, 20.0, 1, 1), (True, 60.0, 1, 0), (True, 2.0, 2 << 30, 0)],
)
def test_slow_models_get_some_odd_data_in_windows(few: bool, seconds: float, size: int, count: int) -> None:
    comparison: Any = Comparison.__new__(Comparison)
    comparison.passed, comparison.trial_seconds, comparison.bytes_of_output = list("abcde"), seconds, size
    drawn = [tuple(comparison.passed_for_windows(few)) for _ in range(60)]
    assert {len(set(names)) for names in drawn} == {count}
    assert few or set(drawn) == {tuple("abcde")}
    assert not few or not count or {name for names in drawn for name in names} == set("abcde")


def test_of_large_inputs_one_probes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_probes, "PASSED_BYTES", 100)
    monkeypatch.setattr(passed_probes, "LARGEST_PASSED", 1000)
    kept = set()
    for _ in range(40):
        of = passed_probes.PassedProbes()
        for name in "abc":
            of.keep(name, lambda seed, output: [], [torch.zeros(100)])
        (one,) = of.found
        kept.add(one.name)
        of.keep("larger", lambda seed, output: [], [torch.zeros(500)])
        assert of.found == [one]
    assert kept == {"a", "b", "c"}
