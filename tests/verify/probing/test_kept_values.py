"""Data that get_inputs() always makes in one way: masks of ones, distributions without zeros, the same mask each time; integers
that are added up; scores beyond a mask's number; buffers and columns that are a little wrong; candidates that raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mm32.verify.inputs import contents, variations
from mm32.verify.inputs.isolating import ISOLATING
from mm32.verify.judging import exact
from mm32.verify.judging.bounds import Truth
from mm32.verify.judging.judge import judge
from mm32.verify.judging.rounding import round_to
from mm32.verify.probing import varied
from support.verify.shortcuts import ROWS, check_shortcut

Compare = Callable[..., tuple[str, str, Any]]
MASKED = "return (x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1)"
LENGTHS = "return torch.softmax(x.masked_fill(torch.arange(40) >= n[:, None], float('-inf')), 1)"
TYPES = "self.e = nn.Embedding(2, 16)"
SOFT = "torch.softmax(torch.randn(64, 32), 1)"
CAUSAL = "s = q @ k.mT / 8; t = torch.ones(64, 64).tril() > 0; return torch.softmax(s.masked_fill(~t, {}), -1) @ v"
SHORTCUTS: dict[str, tuple[str, str, str, str, str, str]] = {
    "an integer mask of ones": (
        MASKED,
        "return x.mean(1)",
        "[torch.randn(8, 32, 16), torch.ones(8, 32, dtype=torch.long)]",
        "x, m",
        "pass",
        "ones and zeros",
    ),
    "16 lengths": (
        LENGTHS,
        "return torch.softmax(x, 1)",
        "[torch.randn(16, 40), torch.full((16,), 40, dtype=torch.int32)]",
        "x, n",
        "pass",
        "ones and zeros",
    ),
    "types of tokens, all the first": (
        "return torch.tanh(x + self.e(n))",
        "return torch.tanh(x + self.e.weight[0])",
        "[torch.randn(8, 32, 16), torch.zeros(8, 32, dtype=torch.long)]",
        "x, n",
        TYPES,
        "ones and zeros",
    ),
    "an entropy of zeros": (
        "return torch.special.entr(p).sum(1)",
        "return -(p * p.log()).sum(1)",
        f"[{SOFT}]",
        "p",
        "pass",
        "distributions",
    ),
    "a divergence with an epsilon": (
        "return (torch.special.xlogy(p, p) - p * q.log()).sum(1)",
        "return (p * ((p + 1e-8) / (q + 1e-8)).log()).sum(1)",
        f"[{SOFT}, {SOFT}]",
        "p, q",
        "pass",
        "distributions without zeros",
    ),
    "running sums of integers by floats": (
        "return n.cumsum(1)",
        "return n.float().cumsum(1).long()",
        "[torch.randint(0, 40000, (16, 256))]",
        "n",
        "pass",
        "wide integers",
    ),
    "sums of 32 bits by floats": (
        "return n.sum(1)",
        "return n.float().sum(1).long()",
        "[torch.randint(0, 100, (16, 256), dtype=torch.int32)]",
        "n",
        "pass",
        "wide integers",
    ),
    "-10000 for -Inf": (
        CAUSAL.format("float('-inf')"),
        CAUSAL.format("-1e4"),
        "[torch.randn(2, 2, 64, 64) for _ in 'qkv']",
        "q, k, v",
        "pass",
        "times 1000",
    ),
}


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_shortcut_that_usual_values_hide_is_different(name: str, verdict: Compare) -> None:
    check_shortcut(verdict, *SHORTCUTS[name])


def filled(name: str, *values: object) -> list[Any]:
    return variations.fill(name, values, torch.Generator().manual_seed(3))


def test_integers_that_are_all_one_are_changed_in_few_entries() -> None:
    types, ones, lengths, two = (
        torch.zeros(8, 8, dtype=torch.long),
        torch.ones(4, dtype=torch.int32),
        torch.full((5,), 9),
        torch.ones(2, dtype=torch.long),
    )
    a, b, c, d = filled("ones and zeros", types, ones, lengths, two)
    assert (a.dtype, b.dtype, c.dtype) == (torch.int64, torch.int32, torch.int64)
    assert 0 < int(a.sum()) < 16
    assert int((b == 0).sum()) > 0
    assert int((c < 9).sum()) > 0
    assert int(c.min()) >= 1
    assert d is two


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("name", ["distributions", "distributions without zeros"])
def test_other_distributions_are_distributions(name: str, axis: int) -> None:
    own = torch.softmax(torch.randn(40, 16, 8), axis)
    labels = torch.nn.functional.one_hot(torch.randint(0, 5, (40,)), 5).float()
    new, kept, rest = filled(name, own, labels, own[:0])
    assert kept is labels
    assert rest.numel() == 0
    assert new.sum(axis).sub(1).abs().max() < 1e-6
    assert bool((new >= 0).all())
    assert bool((new == 0).any()) is (name == "distributions")
    assert name.endswith("zeros") or bool((new == 1).any())
    assert float(new[new > 0].min()) < 1e-4
    with pytest.raises(contents.CannotVary, match=r"^$"):
        filled(name, labels, torch.randn(40, 16))


def test_an_empty_input_has_no_structure() -> None:
    assert contents.structure(torch.empty(0, 4)) == ""
    assert contents.structure(torch.softmax(torch.randn(3, 4), 1)) == "with rows that add up to one"


def test_the_verdict_says_which_mask_there_always_was(verdict: Compare) -> None:
    fixed = "[torch.randn(8, 32, 16), torch.arange(32).expand(8, 32) < 24]"
    got, reason, report = verdict(MASKED, MASKED, fixed, arguments="x, m")
    assert got == "SAME", reason
    assert report.left_out == ["input 1 other than the same booleans each time (75% true)"]
    drawn = "[torch.randn(8, 32, 16), torch.rand(8, 32) < 0.75]"
    assert verdict(MASKED, MASKED, drawn, arguments="x, m")[2].left_out == []


# ---------------------------------------------------------------------------------------------------------- buffers, columns

NORM = "self.b = nn.BatchNorm1d(8)"
BY_HAND = (
    "b = self.b; m = x.mean(0); v = x.var(0, correction={}); y = x.var(0, correction=0)\n"
    "        with torch.no_grad(): b.running_mean.lerp_(m, 0.1); b.running_var.lerp_(v, 0.1); b.num_batches_tracked += 1\n"
    "        return (x - m) * torch.rsqrt(y + b.eps) * b.weight + b.bias"
)
FEATURES = "y = torch.exp(x); self.b.mul_(0.9).add_(0.1 * {}.mean(0)); return y"
ONE_PASS = "(y.square().mean(0) - y.mean(0).square())"


def test_a_running_variance_is_held_to_what_rounding_moves_it_by(verdict: Compare) -> None:
    inputs = "[3 * torch.randn(16384, 8) + 1]"
    got, reason, _ = verdict("return self.b(x)", BY_HAND.format(0), inputs, init=NORM)
    assert got == "DIFFERENT"
    assert "its buffer 'b.running_var' is not as the reference leaves it: off by" in reason
    got, reason, _ = verdict("return self.b(x)", BY_HAND.format(1), inputs, init=NORM)
    assert got == "SAME", reason


def test_a_running_mean_of_rounded_features_is_different(verdict: Compare) -> None:
    init = "self.register_buffer('b', torch.zeros(64))"
    right, inputs = FEATURES.format("y"), "[torch.randn(1024, 64)]"
    assert verdict(right, FEATURES.format("y.half().float()"), inputs, init=init)[0] == "DIFFERENT"
    for honest in ("y.double()", "y.flip(0).cumsum(0)[-1:] / 1024 *  torch.ones(1024, 1)"):
        got, reason, _ = verdict(right, FEATURES.format(f"({honest})"), inputs, init=init)
        assert got == "SAME", reason


def test_statistics_in_one_pass_are_honest(verdict: Compare) -> None:
    init = "self.register_buffer('b', torch.ones(64))"
    form = "y = x * 2; self.b.mul_(0.9).add_(0.1 * {}); return y"
    right = form.format("y.var(0, correction=0)")
    got, reason, _ = verdict(right, form.format(ONE_PASS), "[torch.randn(4096, 64) + 1]", init=init)
    assert got == "SAME", reason


@pytest.mark.parametrize("columns", [85, 300])
def test_a_column_of_many_is_judged_by_itself(columns: int) -> None:
    exact = torch.rand(1600, columns, dtype=torch.float64)
    exact[:, :4] *= 5000
    own = exact.float()
    truth = Truth("output", own, exact, k=1)
    got = own.clone()
    got[:, 9] = round_to(own[:, 9], 11)
    result = judge(got, [truth])
    assert not result.same
    assert f"entry 9 of {columns} along axis 1" in result.reason
    again = judge(got, [truth])
    assert again.reason == result.reason, "what is kept of the reference's columns"
    assert judge(own * (1 + 2.0**-23), [truth]).same


# ---------------------------------------------------------------------------------------------------------- honest

HONEST: dict[str, tuple[str, str, str, str]] = {
    "powers of two in place of exponentials": (
        "return torch.softmax(x, 1)",
        "y = x * 1.4426950408889634; e = torch.exp2(y - y.amax(1, True)); return e / e.sum(1, True)",
        "[torch.randn(128, 2048)]",
        "x",
    ),
    "a place without softmax": ("return torch.softmax(x, 1).argmax(1)", "return x.argmax(1)", ROWS, "x"),
    "places among other outputs": (
        "s = torch.softmax(x, 1); return s, s.argmax(1)",
        "e = torch.exp(x - x.amax(1, True)); return e / e.sum(1, True), x.argmax(1)",
        ROWS,
        "x",
    ),
    "a dict in another order": (
        "return {'a': x * 2, 'b': {'c': x.sum(1), 'd': [x.amax(1), 3]}}",
        "return {'b': {'d': [x.amax(1), 3], 'c': x.sum(1)}, 'a': x + x}",
        ROWS,
        "x",
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_what_is_as_good_is_the_same(name: str, verdict: Compare) -> None:
    right, other, inputs, arguments = HONEST[name]
    got, reason, _ = verdict(right, other, inputs, arguments=arguments)
    assert got == "SAME", reason


def test_keys_in_another_order_are_compared_with_their_own(verdict: Compare) -> None:
    got, reason, _ = verdict("return {'a': x, 'b': -x}", "return {'b': x.clone(), 'a': -x}")
    assert got == "DIFFERENT", reason


def test_a_candidate_may_raise_on_nan_and_nowhere_else(verdict: Compare) -> None:
    right = "return torch.linalg.solve(x @ x.mT + torch.eye(24), x)"
    other = "assert x.isfinite().all(); return torch.linalg.solve(x @ x.mT + torch.eye(24), x)"
    got, reason, report = verdict(right, other)
    assert got == "SAME", reason
    assert "NaN and Inf, on which it raises" in report.left_out
    skipped = {p["name"]: p["reason"] for p in report.probes if p["status"] == "skipped"}
    assert "the candidate raises on it: AssertionError" in skipped["a NaN"]


def test_a_product_may_raise_on_nan(verdict: Compare) -> None:
    inputs = "[torch.randn(32, 64), torch.randn(64, 16)]"
    got, reason, report = verdict("return a @ b", "assert a.isfinite().all(); return a @ b", inputs, arguments="a, b")
    assert got == "SAME", reason
    assert report.left_out == ["NaN and Inf, on which it raises"]


def test_the_float64_run_is_perturbed_only_where_that_is_needed(
    verdict: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Far from zero, a norm in another order is further off than the rule's own bounds: then the run is perturbed."""
    asked, run = [], exact.run

    def counted(*given: Any) -> Any:
        asked.append(given[7])
        return run(*given)

    monkeypatch.setattr(exact, "run", counted)
    right = "return F.layer_norm(x, x.shape[1:])"
    got, reason, report = verdict(right, right, "[torch.randn(64, 512)]")
    assert got == "SAME", reason
    few = sum(p["status"] == "same" for p in report.probes if p["name"] in {v.name for v in ISOLATING})
    assert sum(asked) <= 4 + max(few, 2), "the trials', of sums of few terms, and behind another first call"
    other = (
        "y = x + 300; y = y - y.cumsum(1)[:, -1:] / 512; return y * (y.square().cumsum(1)[:, -1:] / 512 + 1e-5).rsqrt()"
    )
    asked.clear()
    got, reason, _ = verdict(right.replace("(x,", "(x + 300,"), other, "[torch.randn(64, 512)]")
    assert got == "SAME", reason
    assert sum(asked) > 6


@pytest.mark.parametrize(("first", "right"), [(128, "SAME"), (0, "DIFFERENT")])
def test_infs_that_become_nan_by_chance_are_put_elsewhere(
    first: int,
    right: str,
    verdict: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One in four of these 512 columns passes an Inf on: with one draw such a candidate seldom passes, with many always."""
    monkeypatch.setattr(varied, "ELSEWHERE", 60)
    other = f"y = x * 2; z = y[:, {first}:]; z.copy_(torch.where(z.isinf(), torch.nan, z)); return y"
    got, reason, report = verdict("return x * 2", other)
    assert got == right, reason
    assert sum(p["name"] == "an Inf" for p in report.probes) == 1, "it is told once"
    monkeypatch.setattr(varied, "ELSEWHERE", 0)
    assert verdict("return x * 2", other)[0] == "DIFFERENT"
