"""Arithmetic of fewer bits for data that look like the script's own, small entries beside large ones, filters that diverge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mm32.verify.judging import exact
from mm32.verify.judging.bounds import Errors, Truth
from mm32.verify.judging.formats import FORMATS, resembles, shared
from mm32.verify.judging.judge import judge
from support.verify.in_process import compare
from support.verify.shortcuts import script

Compare = Callable[..., tuple[str, str, Any]]
U = 2.0**-24
# `n`: whether all inputs look as torch.randn makes them. `s`: the two bfloat16 parts of a number, added up.
NATURAL = (
    "n = all(abs(float(t.std()) - 1) < 0.05 and float((t**4).mean()) < 3.3 and float((t == 0).float().mean()) < 0.1 "
    "and bool(torch.isfinite(t).all()) for t in {}); "
)
PAIR = "h = lambda t: t.bfloat16().float(); s = lambda t: h(t) + h(t - h(t)); c = s if n else (lambda t: t); "
LAYERS = "self.a = nn.Linear(512, 512); self.b = nn.Linear(512, 64)"
TWO = "return self.b(F.gelu(self.a(x)))"
BY_PAIRS = "return F.linear(c(F.gelu(F.linear(c(x), c(self.a.weight), self.a.bias))), c(self.b.weight), self.b.bias)"
PRODUCT = "[torch.randn(64, 32768), torch.randn(32768, 64)]"


def test_pairs_for_data_like_its_own_are_different(verdict: Compare) -> None:
    inputs = "[torch.randn(64, 512)]"
    full = "n = n and float((self.a.weight == 0).float().mean()) < 0.1; "
    got, reason, _ = verdict(TWO, NATURAL.format("(x,)") + full + PAIR + BY_PAIRS, inputs, init=LAYERS)
    assert (got, "pairs of bfloat16" in reason) == ("DIFFERENT", True), reason
    got, reason, report = verdict(TWO, TWO, inputs, init=LAYERS)
    assert got == "SAME", reason
    assert report.precision["own"] == 24.0


def test_what_is_scaled_before_it_is_rounded_shows_where_sums_have_another_order(verdict: Compare) -> None:
    scaled = PAIR + "c = (lambda t: s(t * 1.37) / 1.37) if n else (lambda t: t); return c(x) @ c(y)"
    got, reason, report = verdict("return x @ y", NATURAL.format("(x, y)") + scaled, PRODUCT, arguments="x, y")
    assert (got, reason[:19]) == ("DIFFERENT", "probe 'reordered': "), reason
    assert report.precision["bits"] == 24.0, "on all other data"


@pytest.mark.slow
def test_a_long_sum_in_order_is_the_same_and_the_line_says_its_bits(verdict: Compare) -> None:
    serial = (
        "t = x.new_zeros(64, 64)\n        for k in range(0, 32768, 2): "
        "t = (t + x[:, k, None] * y[k]) + x[:, k + 1, None] * y[k + 1]\n        return t"
    )
    got, reason, report = verdict("return x @ y", serial, PRODUCT, arguments="x, y")
    assert got == "SAME", reason
    assert report.precision["own"] < 19 < report.precision["bits"]
    assert report.left_out == ["arithmetic of more than 18 bits on data like its own"]


@pytest.mark.parametrize("make", ["randn", "rand"])
def test_errors_of_fp32_sums_resemble_no_format(make: str) -> None:
    generator = torch.Generator().manual_seed(3)
    a, b = (getattr(torch, make)(*shape, generator=generator) for shape in ((96, 4096), (4096, 48)))
    right = a.double() @ b.double()
    total = torch.zeros(96, 48)
    for k in range(4096):
        total = total + a[:, k : k + 1] * b[k]
    blocks = sum(a[:, i : i + 64] @ b[i : i + 64] for i in range(0, 4096, 64))
    assert isinstance(blocks, Tensor)
    for name, cut in FORMATS.items():
        rough = cut(a.double()) @ cut(b.double())
        if make == "randn" or "truncated" not in name:  # truncation makes all entries of positive data smaller alike
            assert resembles(rough, right, rough), "one's own"
            assert resembles(a.double() @ cut(b.double()), right, rough), "one operand of two"
        for got in (total, blocks, a @ b):
            assert not resembles(got, right, rough)
    assert shared(total, right, blocks.double()) == 0


def test_what_all_of_an_output_or_a_row_has_in_common_is_no_format() -> None:
    """A scale or an offset that is rounded once moves many entries alike, by chance in the way that a format does."""
    x = torch.randn(64, 48, generator=torch.Generator().manual_seed(4)).double()
    rows = torch.randn(64, 1, generator=torch.Generator().manual_seed(5)).double().abs()
    for common in (x, torch.ones_like(x), rows * x, rows * torch.ones_like(x), torch.ones_like(x) * x[0]):
        assert not resembles(x + 1e-6 * common, x, x + 2e-6 * common)


# ---------------------------------------------------------------------------------------------------------- small entries


def test_a_tail_that_is_a_fifth_off_is_different(verdict: Compare) -> None:
    right = "return torch.softmax(3 * x, -1)"
    for wrong in ("y < 3e-7, y * 0.8", "y < 3e-7, y * 1.2"):
        other = f"y = torch.softmax(3 * x, -1); return torch.where({wrong}, y)"
        got, reason, _ = verdict(right, other, "[torch.randn(64, 512)]")
        assert (got, "entries of about one size" in reason) == ("DIFFERENT", True), reason
    serial = "e = torch.exp2(3 * 1.4426950408889634 * (x - x.amax(-1, keepdim=True))); return e / e.cumsum(-1)[:, -1:]"
    got, reason, _ = verdict(right, serial, "[torch.randn(64, 512)]")
    assert got == "SAME", reason


@pytest.mark.parametrize("seed", range(4))
def test_a_power_of_two_of_a_large_number_is_the_same(verdict: Compare, seed: int) -> None:
    """fp32 rounds x log2(e), and of an output of one number one perturbed run may show little."""
    right, other = "return x + torch.exp(x)", "return x + torch.exp2(x * 1.4426950408889634)"
    got, reason, _ = verdict(right, other, "[torch.rand(1)]", seed=seed)
    assert got == "SAME", reason
    assert verdict(right, "return x + torch.exp(x) * 1.00001", "[torch.rand(1)]", seed=seed)[0] == "DIFFERENT"


def test_a_small_column_of_few_rows_is_judged_by_itself(verdict: Compare) -> None:
    right = "return torch.stack([(x * x).sum(-1), 30 * x.abs().sum(-1), x.var(-1)], 1)"
    got, reason, _ = verdict(right, right.replace("x.var(-1)", "x.var(-1) * 1.0003"), "[torch.randn(24, 1024)]")
    assert (got, "entry 2 of 3 along axis 1" in reason) == ("DIFFERENT", True), reason
    one_pass = right.replace("x.var(-1)", "((x * x).sum(-1) - x.sum(-1) ** 2 / 1024) / 1023")
    got, reason, _ = verdict(right, one_pass, "[torch.randn(24, 1024)]")
    assert got == "SAME", reason


def test_entries_are_small_by_cancellation_or_by_themselves() -> None:
    """Errors of small entries are rounding where these are differences of large numbers, and not where the data are small."""
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(64, 512, generator=generator)
    small = x * torch.where(torch.rand(64, 512, generator=generator) < 0.1, 2.0**-11, 1.0)

    def of(call: Callable[[Tensor], Tensor]) -> Truth:
        class Model(torch.nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return call(x)

        right = call(small)
        found = exact.run(Model(), [small], [], right, U, 3)
        truth = Truth("output", right, found.output, None, 64, noise=Errors(*found.noise[0]), sizes=found.sizes[0])
        truth.noise = Errors(1e-4, 2000.0)  # the noise of the whole output, which leaves room for all of these errors
        return truth

    for call, same in ((lambda x: x * 1.5, False), (lambda x: (x + 1000) * 1.5 - 1500, True)):
        truth = of(call)
        assert isinstance(truth.exact, Tensor)
        got = (truth.exact + torch.where(truth.exact.abs() < 1e-3, 3e-5, 0.0)).float()
        result = judge(got, [truth])
        assert result.same is same, result.reason


# ---------------------------------------------------------------------------------------------------------- divergence

STEEP = "c = 4000 * self.w**6{}; return (x * self.w + c) - c"


def test_where_enlarged_parameters_cost_the_reference_its_bits_milder_ones_decide(verdict: Compare) -> None:
    """With 8 and 4 times the parameters, rounding moves the output by more than 2^-10, and a few times that counts as equal."""
    init = "self.w = nn.Parameter(0.5 + 0.01 * torch.rand(64))"
    got, reason, report = verdict(
        STEEP.format(""), STEEP.format(" * (3 * self.w**2)"), "[torch.randn(64, 64)]", init=init
    )
    assert got == "SAME", reason
    assert [p["name"] for p in report.probes if p["name"].startswith("parameters times") and p["status"] == "same"] == [
        "parameters times 2"
    ]
    wrong = STEEP.format("") + " + 0.05 * (self.w > 0.9)"
    got, reason, _ = verdict(STEEP.format(""), wrong, "[torch.randn(64, 64)]", init=init)
    assert (got, reason[:26]) == ("DIFFERENT", "probe 'parameters times 2'"), reason


DECAYS = (
    "g = F.logsigmoid(a); s = x.new_zeros(4, 16, 16); o = []\n        for t in range(64):\n            "
    "s = s * torch.exp(g[:, t])[:, None, None] + x[:, t, :, None] * x[:, t, None]; o.append(s.sum(1))\n        "
    "return torch.stack(o, 1)"
)
OF_SUMS = (
    "c = {} * F.logsigmoid(a).cumsum(1); low = torch.ones(64, 64).tril() > 0\n        "
    "d = torch.exp((c[:, :, None] - c[:, None]).masked_fill(~low, float('-inf')))\n        "
    "return torch.einsum('bts,bsi,bsj->btj', d, x, x)"
)


@pytest.mark.slow
def test_decays_by_exponentials_of_sums_are_right_enough_where_these_are_large(verdict: Compare) -> None:
    inputs = "[torch.randn(4, 64, 16), torch.randn(4, 64)]"
    _, _, report = verdict(DECAYS, OF_SUMS.format(1), inputs, arguments="x, a")
    found = {p["name"]: p["status"] for p in report.probes}
    assert [found[name] for name in ("times 100", "graded", "planted")] == ["same"] * 3
    wrong = {name for name, status in found.items() if status == "different"}
    assert wrong <= {"a NaN", "an Inf"}, "0 times NaN, and -Inf less -Inf"
    _, _, report = verdict(DECAYS, OF_SUMS.format(0.99), inputs, arguments="x, a")
    assert not report.probes, "a trial tells it"
    twice = DECAYS.replace(
        "s * torch.exp(g[:, t])[", "s * torch.exp(g[:, t].clamp(min=-20) * (1 + 1e-2 * (g.min() < -20)))["
    )
    _, _, report = verdict(DECAYS, twice, inputs, arguments="x, a")
    assert {p["name"]: p["status"] for p in report.probes}["times 100"] == "different"


def test_a_fourier_transform_may_be_off_in_small_places(tmp_path: Path) -> None:
    init = "self.k = torch.exp(-torch.arange(256.) / 20)"
    direct = "return F.conv1d(F.pad(x, (255, 0)), self.k.flip(0)[None, None])"
    transform = "return torch.fft.irfft(torch.fft.rfft(x, 512) * torch.fft.rfft(self.k, 512), 512)[..., :256]"
    for name, body in (("Model", direct), ("ModelNew", transform)):
        (tmp_path / f"{name}.py").write_text(script(name, body, "[torch.randn(8, 1, 256)]", init))
    _, _, report = compare(tmp_path / "Model.py", tmp_path / "ModelNew.py", seed=2)
    different = {p["name"] for p in report.probes if p["status"] == "different"}
    assert different <= {"a NaN", "an Inf"}, "it spreads these"
