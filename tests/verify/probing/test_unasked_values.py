"""What get_inputs() never makes: products that do not vanish, weights that are no mask, scores beside labels, a NaN in any input,
other tensors in plain attributes. And NaN that only the reference's own way of computing spreads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mm32.verify.inputs import contents, states, variations
from mm32.verify.judging import diagnosis, exact
from mm32.verify.judging.bounds import Truth
from mm32.verify.judging.draws import Recorder
from mm32.verify.judging.judge import judge
from mm32.verify.judging.odd_values import SPREAD_HINT
from mm32.verify.judging.straight_through import StraightThrough
from mm32.verify.judging.zeros import SkipsZeros
from mm32.verify.probing import odd_answers
from mm32.verify.worker import plain
from support.verify.shortcuts import check_shortcut

Compare = Callable[..., tuple[str, str, Any]]
LINEAR = "self.l = nn.Linear(64, 64); self.s = torch.ones(64)"
SCORES = "[torch.randn(64, 32), (torch.rand(64, 32) < 0.3).float()]"
TWO = "[torch.randn(16, 64), torch.randn(16, 64)]"
ALIKE = "z = F.normalize(x, dim=1); s = (z @ z.t()) * 10; e = torch.eye(len(z)).bool(); "
HISTOGRAM = (
    "b = i.flatten(1); h = torch.zeros(len(b), 64).scatter_add_(1, b, torch.ones_like(b).float()); c = h.cumsum(1); "
)
REMEMBERED = "self.k = self.i = torch.zeros(1)"
KNOWN_AGAIN = "self.k, self.i = (self.k, self.i) if i[:4].equal(self.k) else (i[:4].clone(), i.clone()); "
# The right and the wrong forward, inputs, arguments, what __init__ makes, and the probe that shows the wrong one.
SHORTCUTS: dict[str, tuple[str, str, str, str, str, str]] = {
    "a product of numbers below 1": (
        "return x.cumprod(1)",
        "y = torch.zeros_like(x); y[:, :400] = x[:, :400].cumprod(1); return y",
        "[torch.rand(8, 1024)]",
        "x",
        "pass",
        "near one",
    ),
    "a product of 1 less numbers below 1": (
        "return (1 - x).cumprod(1)",
        "y = torch.zeros_like(x); y[:, :400] = (1 - x[:, :400]).cumprod(1); return y",
        "[torch.rand(8, 1024)]",
        "x",
        "pass",
        "near zero",
    ),
    "gains of ones": (
        "return torch.tanh(x) * w",
        "return torch.where(w != 0, torch.tanh(x), 0.0)",
        "[torch.randn(24, 64), torch.ones(64)]",
        "x, w",
        "pass",
        "fractions",
    ),
    "offsets of zeros": (
        "return torch.tanh(x + b)",
        "return torch.tanh(x + (b != 0))",
        "[torch.randn(24, 64), torch.zeros(64)]",
        "x, b",
        "pass",
        "fractions",
    ),
    "weights under a root": (
        "return torch.tanh(x) * w.sqrt()",
        "return torch.where(w != 0, torch.tanh(x), 0.0)",
        "[torch.randn(24, 64), torch.ones(64)]",
        "x, w",
        "pass",
        "fractions of one sign",
    ),
    "scores that overflow": (
        "return F.binary_cross_entropy_with_logits(x, t)",
        "return ((1 + x.exp()).log() - t * x).mean()",
        SCORES,
        "x, t",
        "pass",
        "times 100",
    ),
    "a NaN of the second": (
        "return torch.maximum(x, y)",
        "return torch.where(y > x, y, x)",
        TWO,
        "x, y",
        "pass",
        "a NaN in another input",
    ),
    "a NaN of the third": (
        "return torch.maximum(x + z, y)",
        "return torch.maximum(x + torch.nan_to_num(z), y)",
        f"{TWO} + [torch.randn(16, 64)]",
        "x, y, z",
        "pass",
        "a NaN in a third input",
    ),
    "a NaN of the fifth": (
        "return torch.maximum(x + z + v, y) + u",
        "return torch.maximum(x + z + torch.nan_to_num(v), y) + torch.nan_to_num(u)",
        f"{TWO} + [torch.randn(16, 64) for _ in 'zvu']",
        "x, y, z, v, u",
        "pass",
        "a NaN in a later input",
    ),
    "a NaN that the reference fills": (
        "return x * torch.where(y.isnan(), 0.0, y)",
        "return x * y",
        TWO,
        "x, y",
        "pass",
        "a NaN in another input",
    ),
    "padding that never comes": (
        "m = (i != 0).float()[..., None]; return (self.e(i) * m).sum(1) / m.sum(1).clamp(min=1)",
        "return self.e(i).mean(1)",
        "[torch.randint(1, 100, (16, 32))]",
        "i",
        "self.e = nn.Embedding(100, 16)",
        "zeros among integers",
    ),
    "a length of 0 that never comes": (
        "m = torch.arange(512) < n[:, None]; return (x * m[..., None]).sum(1) / n.clamp(min=1)[:, None]",
        "m = torch.arange(512) < n[:, None]; return (x * m[..., None]).sum(1) / n[:, None]",
        "[torch.randn(8, 512, 4), torch.randint(1, 513, (8,))]",
        "x, n",
        "pass",
        "zeros among integers",
    ),
    "the longest of the first call": (
        "m = torch.arange(64) < n[:, None]; return (x * m[..., None]).sum(1)",
        "self.n = getattr(self, 'n', 0) or int(n.max()); m = torch.arange(self.n) < n[:, None]; "
        "return (x[:, : self.n] * m[..., None]).sum(1)",
        "[torch.randn(256, 64, 8), torch.randint(1, 65, (256,))]",
        "x, n",
        "pass",
        "another first call",
    ),
    "the first of a histogram": (
        f"{HISTOGRAM}l = c.gather(1, (h > 0).long().argmax(1, keepdim=True)); return ((c - l).clamp(min=0) / 1e3).gather(1, b)",
        f"{HISTOGRAM}return ((c - c[:, :1]).clamp(min=0) / 1e3).gather(1, b)",
        "[torch.randint(0, 64, (6, 32, 32))]",
        "i",
        "pass",
        "narrow integers",
    ),
    "an image of one level": (
        f"{HISTOGRAM}l = h.amax(1, keepdim=True); return (c / (1024 - l).clamp(min=1)).gather(1, b)",
        f"{HISTOGRAM}l = h.amax(1, keepdim=True); return (c / (1024 - l)).gather(1, b)",
        "[torch.randint(0, 64, (6, 32, 32))]",
        "i",
        "pass",
        "narrow integers",
    ),
    "small terms left out": (
        f"{ALIKE}return torch.logsumexp(s.masked_fill(e, -torch.inf), 1)",
        f"{ALIKE}t = torch.exp(s - 10).masked_fill(e | (s < -5), 0); return t.sum(1).clamp(min=1e-30).log() + 10",
        "[torch.randn(64, 128)]",
        "x",
        "pass",
        "opposed",
    ),
    "a maximum before what falls": (
        "return F.gelu(self.l(x)).amax(1)",
        "return F.gelu(self.l(x).amax(1))",
        "[torch.randn(16, 64)]",
        "x",
        LINEAR,
        "low biases",
    ),
    "a maximum that starts somewhere": (
        "return x.amax(1)",
        "return x.amax(1).clamp_min(-1e30)",
        "[torch.randn(16, 64, 4)]",
        "x",
        "pass",
        "huge rows",
    ),
    "the end of a mean": (
        "return ((x - y) ** 2).mean()",
        "d = (x - y).flatten()[:-4]; return (d * d).sum() / x.numel()",
        "[torch.rand(512, 1000), torch.rand(512, 1000)]",
        "x, y",
        "pass",
        "a NaN",
    ),
    "a decay that is split": (
        "c = self.a.cumsum(0); return torch.exp(c[:, None] - c).tril() @ x",
        "c = self.a.cumsum(0); return (torch.exp(c)[:, None] * torch.exp(-c)).tril() @ x",
        "[torch.randn(128, 16)]",
        "x",
        "self.a = nn.Parameter(-torch.rand(128))",
        "negative parameters",
    ),
    "an epsilon beside a distance": (
        "return 1 / F.pairwise_distance(x, y)",
        "return 1 / (x - y).norm(dim=1)",
        "[torch.randn(16, 64), torch.randn(16, 64)]",
        "x, y",
        "pass",
        "alike inputs",
    ),
    "a memory that is cut short": (
        "y = x[:, 0]; o = [y]\n        for t in range(1, 96):\n            y = a * y + (1 - a) * x[:, t]; o.append(y)\n"
        "        return torch.stack(o, 1)",
        "o = []\n        for b in range(0, 96, 32):\n            y = x[:, max(b - 40, 0)]\n"
        "            for t in range(max(b - 40, 0), b + 32):\n"
        "                y = a * y + (1 - a) * x[:, t] if t else y; o += [y] if t >= b else []\n        return torch.stack(o, 1)",
        "[torch.randn(64, 96), 0.3 + 0.3 * torch.rand(64)]",
        "x, a",
        "pass",
        "just below one",
    ),
    "loops among edges": (
        "r, c = e; return torch.zeros(64).index_add(0, r, torch.where(r == c, 0.0, x[c]))",
        "r, c = e; return torch.zeros(64).index_add(0, r, x[c])",
        "[(lambda r: torch.stack([r, (r + torch.randint(1, 64, (512,))) % 64]))(torch.randint(0, 64, (512,))), torch.randn(64)]",
        "e, x",
        "pass",
        "equal pairs",
    ),
    "equal places in two inputs": (
        "return torch.where(i == j, 0.0, x[i] - x[j] + 1)",
        "return x[i] - x[j] + 1",
        "(lambda i: [torch.randn(64), i, (i + torch.randint(1, 64, (512,))) % 64])(torch.randint(0, 64, (512,)))",
        "x, i, j",
        "pass",
        "equal pairs",
    ),
    "a mask that is taken for empty by its first row": (
        "return torch.where(m, 0, x).cumsum(1)",
        "return torch.where(m, 0, x).cumsum(1) if m[0].any() else x.cumsum(1)",
        "[torch.randn(64, 256), torch.rand(64, 256) < 0.05]",
        "x, m",
        "pass",
        "boolean rows",
    ),
    "the shortest of sorted lengths": (
        "m = torch.arange(64) < n[:, None]; return (x * m[..., None]).sum(1) / n.clamp(min=1)[:, None]",
        "m = torch.arange(64) < n[:, None]; return (x * m[..., None]).sum(1) / n[:, None]",
        "[torch.randn(64, 64, 4), torch.randint(20, 65, (64,)).sort(descending=True).values]",
        "x, n",
        "pass",
        "zeros among integers",
    ),
    "a count that is taken for large": (
        "n = m.sum(1, True); d = torch.where(m, x - torch.where(m, x, 0).sum(1, True) / n.clamp(min=1), 0); "
        "return (d * d).sum(1) / (n[:, 0] - 1).clamp(min=1)",
        "n = m.sum(1, True); d = torch.where(m, x - torch.where(m, x, 0).sum(1, True) / n.clamp(min=1), 0); "
        "return (d * d).sum(1) / (n[:, 0] - 1).clamp(min=16)",
        "[torch.randn(64, 128), torch.rand(64, 128) < 0.5]",
        "x, m",
        "pass",
        "boolean rows",
    ),
    "the darkest of bytes": (
        "v = i.long().flatten(1); h = torch.zeros(8, 256).scatter_add_(1, v, torch.ones(v.shape)); "
        "return h.cumsum(1) - h.gather(1, v.amin(1, keepdim=True))",
        "v = i.long().flatten(1); h = torch.zeros(8, 256).scatter_add_(1, v, torch.ones(v.shape)); "
        "return h.cumsum(1) - h.gather(1, (h[:, :9] > 0).long().argmax(1, keepdim=True))",
        "[torch.randint(0, 255, (8, 64, 64), dtype=torch.uint8)]",
        "i",
        "pass",
        "narrow integers",
    ),
    "a slope behind positive data": (
        "return torch.where(x > 0, x, self.slope * x) * 2",
        "return torch.where(x > 0, x, 0.25 * x) * 2",
        "[torch.rand(64, 32)]",
        "x",
        "self.slope = nn.Parameter(torch.full((1,), 0.25))",
        "zero-mean with other parameters",
    ),
    "what stands for a row without any": (
        "return torch.where(m.any(1, keepdim=True), (x * m).sum(1, keepdim=True), self.none).sin()",
        "return (x * m).sum(1, keepdim=True).sin()",
        "[torch.randn(64, 32), torch.rand(64, 32) < 0.5]",
        "x, m",
        "self.none = nn.Parameter(torch.zeros(1))",
        "boolean rows with other parameters",
    ),
    "zero points behind small data": (
        "return (torch.clamp(torch.round(x * 32) + self.z, -128, 127) - self.z).sin()",
        "return torch.clamp(torch.round(x * 32), -128, 127).sin()",
        "[torch.randn(64, 32)]",
        "x",
        "self.register_buffer('z', torch.zeros(1))",
        "times 100 with other parameters",
    ),
    "an epsilon beside the norm of a weight": (
        "return x @ F.normalize(self.l.weight, dim=1).T + self.l.bias",
        "w = self.l.weight; return x @ (w * (w.square().sum(1, keepdim=True) + 1e-12).rsqrt()).T + self.l.bias",
        "[torch.randn(16, 64)]",
        "x",
        LINEAR,
        "rare rows of parameters",
    ),
    "one row of places for all": (
        "return torch.gather(x, 1, i).sin()",
        "return x.index_select(1, i[0]).sin() if torch.equal(i[0], i[-1]) else torch.gather(x, 1, i).sin()",
        "[torch.randn(64, 40), torch.randint(0, 40, (16,)).expand(64, 16).contiguous()]",
        "x, i",
        "pass",
        "rare rows of integers",
    ),
    "half-precision parts of triangular matrices": (
        "return torch.triu(x @ y)",
        "h, g = x.half(), y.half(); l, k = (x - h.float()).half(), (y - g.float()).half(); "
        "return torch.triu(h.float() @ g.float() + h.float() @ k.float() + l.float() @ g.float())",
        "[torch.rand(64, 64).triu(), torch.rand(64, 64).triu()]",
        "x, y",
        "pass",
        "times 100000",
    ),
    "half-precision parts of symmetric matrices": (
        "return x @ y",
        "h, g = x.half(), y.half(); l, k = (x - h.float()).half(), (y - g.float()).half(); "
        "return h.float() @ g.float() + h.float() @ k.float() + l.float() @ g.float()",
        "[(x + x.T) / 2 for x in torch.rand(2, 64, 64)]",
        "x, y",
        "pass",
        "range of A",
    ),
    "a variance by squares behind a table": (
        "return F.layer_norm(self.e(i).sum(1), (16,))",
        "y = self.e(i).sum(1); m = y.mean(-1, keepdim=True); "
        "return (y - m) * ((y * y).mean(-1, keepdim=True) - m * m + 1e-5).rsqrt()",
        "[torch.randint(0, 500, (64, 8))]",
        "i",
        "self.e = nn.Embedding(500, 16)",
        "offset tables",
    ),
    "bits beyond the sixteenth": (
        "return sum((x >> b) & 1 for b in range(63))",
        "return sum((x >> b) & 1 for b in range(16))",
        "[torch.randint(0, 65536, (16, 32))]",
        "x",
        "pass",
        "wide integers",
    ),
    "a norm's least": (
        "return F.normalize(x, dim=1)",
        "return x / x.norm(dim=1, keepdim=True)",
        "[torch.randn(16, 64)]",
        "x",
        "pass",
        "tiny rows",
    ),
    "a scale that is no parameter": (
        "return torch.tanh(self.l(x) * self.s)",
        "return torch.tanh(self.l(x))",
        "[torch.randn(16, 64)]",
        "x",
        LINEAR,
        "plain tensors",
    ),
    "a norm in a list": (
        "return self.b[0](x)",
        "return F.layer_norm(x, (64,))",
        "[torch.randn(16, 64)]",
        "x",
        "self.b = [nn.LayerNorm(64)]",
        "plain tensors",
    ),
    "indices known again by the first": (
        "return x[:, i]",
        KNOWN_AGAIN + "return x[:, self.i]",
        "[torch.randn(24, 64), torch.arange(40) * 7 % 64]",
        "x, i",
        REMEMBERED,
        "other integers",
    ),
    "edges known again by the first": (
        "return x.index_add(0, i[1], x[i[0]])",
        KNOWN_AGAIN.replace("[:4]", "[:, :4]") + "return x.index_add(0, self.i[1], x[self.i[0]])",
        "[torch.randn(32, 8), torch.randint(0, 32, (2, 200), generator=torch.Generator().manual_seed(1))]",
        "x, i",
        REMEMBERED,
        "other integers",
    ),
    "a mask known again by its first row": (
        "return x.masked_fill(i, 0.0)",
        KNOWN_AGAIN.replace("[:4]", "[:1]") + "return x.masked_fill(self.i, 0.0)",
        "[torch.randn(24, 64), torch.rand(24, 64, generator=torch.Generator().manual_seed(1)) < 0.3]",
        "x, i",
        REMEMBERED,
        "other integers",
    ),
    "indices that must stay distinct": (
        "return x[:, i] / (i.bincount().max() == 1)",
        KNOWN_AGAIN + "return x[:, self.i]",
        "[torch.randn(24, 64), torch.arange(64) * 7 % 64]",
        "x, i",
        REMEMBERED,
        "other integers",
    ),
    "counts that must stay": (
        "return x[:, i] + (0.0 if i.bincount().unique().numel() == 1 else float('nan'))",
        KNOWN_AGAIN + "return x[:, self.i]",
        "[torch.randn(24, 64), torch.arange(40) * 7 % 8]",
        "x, i",
        REMEMBERED,
        "integers in other places",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if i % 3 else []) for i, name in enumerate(SHORTCUTS)]
)
def test_a_shortcut_that_usual_values_hide_is_different(name: str, verdict: Compare) -> None:
    check_shortcut(verdict, *SHORTCUTS[name])


FILTER = "n = 2 * x.shape[1]; return torch.fft.irfft(torch.fft.rfft(x, n=n) * torch.fft.rfft(y, n=n), n=n)[:, :64]"
DIRECT = "return F.conv1d(F.pad(x, (63, 0))[None], y.flip(1)[:, None], groups=16)[0]"
CLUSTERS = "p = (x @ c.T).argmax(1); o = F.one_hot(p, 8).float(); return o.T @ x / o.sum(0).clamp(min=1)[:, None]"
BY_INDEX = (
    "p = (x @ c.T).argmax(1); n = torch.bincount(p, minlength=8).clamp(min=1)[:, None]; "
    "return torch.zeros_like(c).index_add_(0, p, x) / n"
)
ATTENTION = "return torch.softmax(q @ k.mT / 4 + m, -1) @ v"
HIDDEN = "return F.scaled_dot_product_attention(q, k, v, is_causal=True)"
LESS: dict[str, tuple[str, str, str, str]] = {
    "a Fourier transform": (FILTER, DIRECT, TWO, "x, y"),
    "a product with ones and zeros": (CLUSTERS, BY_INDEX, "[torch.randn(128, 16), torch.randn(8, 16)]", "x, c"),
    "a mask that is added": (
        ATTENTION,
        HIDDEN,
        "[*(torch.randn(2, 32, 16) for _ in 'qkv'), torch.full((32, 32), float('-inf')).triu(1)]",
        "q, k, v, m",
    ),
}


@pytest.mark.parametrize("name", LESS)
def test_a_nan_may_spread_less_than_the_references(name: str, verdict: Compare) -> None:
    right, other, inputs, arguments = LESS[name]
    got, reason, _ = verdict(right, other, inputs, arguments=arguments)
    assert got == "SAME", reason


def test_a_nan_that_counts_may_not_be_lost_in_a_transform(verdict: Compare) -> None:
    lost = DIRECT.replace("return ", "x = torch.nan_to_num(x); return ")
    got, reason, _ = verdict(FILTER, lost, TWO, arguments="x, y")
    assert (got, reason[:14]) == ("DIFFERENT", "probe 'a NaN':"), reason


def test_a_mask_that_is_added_hides_no_nan_of_further_inputs(verdict: Compare) -> None:
    causal = "f = torch.ones(32, 32).triu(1) > 0; s = q @ k.mT / 4; "
    right = causal + "return torch.softmax(s.masked_fill(f, float('-inf')), -1) @ v"
    added = causal + "return torch.softmax(s + torch.where(f, float('-inf'), 0.0), -1) @ v"
    got, reason, report = verdict(right, added, "[torch.randn(2, 32, 16) for _ in 'qkv']", arguments="q, k, v")
    assert got == "SAME", reason
    assert {"a NaN in another input", "a NaN in a third input"} <= {
        p["name"] for p in report.probes if p["status"] == "same"
    }


TRIANGLE = "torch.ones(8, 8).triu()"
SPREAD = {
    "sums by a triangle": (
        "return x.view(16, -1, 8).cumsum(2).view(x.shape)",
        f"return (x.view(16, -1, 8) @ {TRIANGLE}).view(x.shape)",
    ),
    "a recurrence by a triangle": (
        "y = [x[:, 0]]\n        for t in range(1, 64): y.append(0.9 * y[-1] + x[:, t])\n        return torch.stack(y, 1)",
        "t = torch.arange(64.0); return x @ torch.where(t >= t[:, None], 0.9 ** (t - t[:, None]), 0.0)",
    ),
    "a stencil by a convolution": (
        "return x.roll(1, 1) + x.roll(-1, 1) - 2 * x",
        "k = torch.tensor([[[0.0, 1.0, -2.0, 1.0, 0.0]]]); "
        "return F.conv1d(F.pad(x[:, None], (2, 2), mode='circular'), k)[:, 0]",
    ),
}


@pytest.mark.parametrize("name", SPREAD)
def test_a_nan_that_spreads_further_is_said_and_is_no_wrong_answer(name: str, verdict: Compare) -> None:
    right, other = SPREAD[name]
    got, reason, report = verdict(right, other, "[torch.randn(16, 64)]")
    assert (got, reason) == ("SAME", "")
    assert odd_answers.FURTHER in report.left_out
    assert any("are NaN where the reference's are not" in note for note in report.notes)


def test_where_a_nan_was_seen_one_is_right_and_numbers_are_judged_as_ever() -> None:
    right = torch.tensor([1.0, math.nan, 2.0, math.inf])
    truth = Truth("output", right, right.double(), spread=torch.tensor([True, True, False, True]))
    assert judge(torch.tensor([math.nan, math.nan, 2.0, math.nan]), [truth]).same
    for wrong in (
        [1.0, math.nan, 3.0, math.nan],
        [1.0, 1.0, 2.0, math.inf],
        [math.inf, math.nan, 2.0, math.inf],
        [1.0, math.nan, math.nan, math.inf],
    ):
        assert not judge(torch.tensor(wrong), [truth]).same


def test_no_exception_takes_a_wrong_answer_to_infs_back(verdict: Compare) -> None:
    """The candidate returns NaN in place of the first Inf that comes, and raises at the next one."""
    wrong = (
        "self.n = getattr(self, 'n', 0) + bool(x.isinf().any())\n"
        "        if self.n > 1 and bool(x.isinf().any()): raise ValueError('no')\n"
        "        return torch.where(x.isinf().any(1), float('nan'), x.sum(1)) if self.n else x.sum(1)"
    )
    got, reason, report = verdict("return x.sum(1)", wrong, "[torch.randn(16, 64)]")
    assert got == "DIFFERENT", (reason, report.left_out)
    assert "probe 'an Inf'" in reason


NOT_SPREAD = {
    "a mask that is multiplied by": (
        "return torch.where(torch.arange(64) % 2 == 0, x, 0.0)",
        "return x * (torch.arange(64) % 2 == 0)",
        SPREAD_HINT,
    ),
    "all of it": (
        "return x + x.roll(1, 1)",
        "return x + x.roll(1, 1) + 0 * x.sum()",
        "NaN where the reference's are not",
    ),
    "a compensated sum": (
        "return x.sum(1)",
        "s = c = torch.zeros(16)\n        for t in range(64):\n            y = x[:, t] - c; z = s + y; c = (z - s) - y; s = z\n"
        "        return s",
        "guard for Inf",
    ),
    "another answer beside it": (
        "return x.view(16, -1, 8).cumsum(2).view(x.shape)",
        f"return (x.view(16, -1, 8) @ {TRIANGLE}).view(x.shape) + x.isnan().any()",
        "probe 'a NaN'",
    ),
}


@pytest.mark.parametrize("name", NOT_SPREAD)
def test_a_nan_that_has_not_spread_is_different_and_told_why(name: str, verdict: Compare) -> None:
    right, other, said = NOT_SPREAD[name]
    got, reason, _ = verdict(right, other, "[torch.randn(16, 64)]")
    assert got == "DIFFERENT"
    assert said in reason
    assert "tile" not in reason.replace(SPREAD_HINT, "")


def test_what_an_input_of_few_values_was_is_said(verdict: Compare) -> None:
    mean = "return torch.tanh((x * m[..., None]).sum(1) / m.sum(1, True).clamp(min=1e-6))"
    hard = "m = (m != 0).float(); " + mean
    for values, said in (
        ("(torch.rand(32, 32) < 0.7).float()", "input 1 other than 0 and 1"),
        ("torch.randint(0, 2, (32, 32)) * 2.0 - 1", "input 1 other than -1 and 1"),
        ("torch.randint(0, 6, (32, 32)).float()", "input 1 other than 6 values from 0 to 5"),
    ):
        got, reason, report = verdict(mean, mean, f"[torch.randn(32, 32, 16), {values}]", arguments="x, m")
        assert got == "SAME", reason
        assert report.left_out == [said]
    inputs = "[torch.randn(8, 32, 16), torch.rand(8, 32)]"
    assert verdict(mean, hard, inputs, arguments="x, m")[0] == "DIFFERENT"
    got, reason, report = verdict(mean, mean, inputs, arguments="x, m")
    assert (got, report.left_out) == ("SAME", [])


def test_what_integers_texts_and_numbers_were_is_said(verdict: Compare) -> None:
    """Nothing is said about a fraction, which may be any."""
    right = "return torch.where(k[:, None] == 0, x, -x) * (2 if how == 'a' else n) + f"
    inputs = (
        "[torch.randn(16, 64), torch.randint(0, 2, (16,)), __import__('random').choice(['a', 'bc']), "
        "__import__('random').choice([8, 16]), __import__('random').random()]"
    )
    got, reason, report = verdict(right, right, inputs, arguments="x, k, how, n, f")
    assert got == "SAME", reason
    said = " ".join(report.left_out)
    assert "input 1 other than 0 and 1" in said
    assert "'a'" in said
    assert "input 4" not in said


def test_rows_that_are_all_the_same_are_said(verdict: Compare) -> None:
    inputs = "[torch.randn(16, 64), (torch.rand(64) > 0.3).expand(16, 64)]"
    got, reason, report = verdict("return x * m", "return x * m[0]", inputs, arguments="x, m")
    assert got == "SAME", reason
    assert "input 1 other than the same in every row" in report.left_out


@pytest.mark.parametrize(("end", "said"), [(255, "input 0 other than whole numbers from 0 to 254"), (256, "")])
def test_the_range_of_bytes_is_said(verdict: Compare, end: int, said: str) -> None:
    right, table = "return self.e[x.long()].sin()", "self.e = nn.Parameter(torch.randn(256))"
    got, reason, report = verdict(right, right, f"[torch.randint(0, {end}, (64, 512), dtype=torch.uint8)]", init=table)
    assert got == "SAME", reason
    assert [one for one in report.left_out if "whole numbers" in one] == ([said] if said else [])


def test_indefinite_matrices_without_an_answer_are_said(verdict: Compare) -> None:
    right = (
        "return torch.where(torch.linalg.cholesky_ex(x).info == 0, x.diagonal(dim1=1, dim2=2).log().sum(1), torch.inf)"
    )
    inputs = "[x @ x.mT + torch.eye(8) for x in torch.randn(1, 32, 8, 8)]"
    got, reason, report = verdict(right, right, inputs)
    assert got == "SAME", reason
    assert "indefinite matrices, for which the reference's own answer is not finite" in report.left_out


def test_an_answer_to_nan_that_is_another_but_right_is_said(verdict: Compare) -> None:
    right = "return torch.where(x > y, x, y)"
    for other, said in (("return torch.maximum(x, y)", True), (right, False)):
        got, reason, report = verdict(right, other, "[torch.randn(16, 64), torch.randn(16, 64)]", arguments="x, y")
        assert got == "SAME", reason
        assert (odd_answers.OTHERWISE in report.left_out) == said


def test_ones_of_which_1_less_them_hides_scores_are_a_mask(verdict: Compare) -> None:
    right = "return torch.softmax(x + (1 - m) * -1e4, -1)"
    other = "return torch.softmax(x.masked_fill(m == 0, float('-inf')), -1)"
    got, reason, report = verdict(right, other, "[torch.randn(8, 32), torch.ones(8, 32)]", arguments="x, m")
    assert got == "SAME", reason
    assert report.left_out == ["input 1 other than 0 and 1"]


def test_labels_that_a_loss_leaves_out_are_said(verdict: Compare) -> None:
    inputs = "[torch.randn(64, 10), torch.randint(0, 10, (64,))]"
    for right, said in (
        ("return F.cross_entropy(x, t)", ["labels of -100, which its loss leaves out"]),
        ("return F.cross_entropy(x, t, ignore_index=3)", ["labels of 3, which its loss leaves out"]),
        ("return (x.logsumexp(1) - x.gather(1, t[:, None])[:, 0]).mean()", []),
    ):
        got, reason, report = verdict(right, right, inputs, arguments="x, t")
        assert got == "SAME", reason
        assert report.left_out == said


def test_few_bits_that_no_data_show_better_are_said(verdict: Compare) -> None:
    init = "self.a = nn.Linear(64, 256); self.b = nn.Linear(256, 64); self.n = nn.LayerNorm(64)"
    right = "return self.n(x + self.b(F.gelu(self.a(self.n(x)))))"
    pieces = (
        "p = lambda w: w.bfloat16().float() + (w - w.bfloat16().float()).bfloat16().float(); s = lambda w: p(1.37 * w) / 1.37; "
        "return self.n(x + F.linear(F.gelu(F.linear(self.n(x), s(self.a.weight), self.a.bias)), s(self.b.weight), self.b.bias))"
    )
    inputs = "[torch.randn(64, 64)]"
    _, _, report = verdict(right, pieces, inputs, init=init)
    assert [said for said in report.left_out if said.startswith("arithmetic of more than 1")]
    got, reason, report = verdict(right, right, inputs, init=init)
    assert (got, report.left_out) == ("SAME", []), reason


def test_larger_values_that_no_answer_is_finite_for_are_said(verdict: Compare) -> None:
    right = "return x.cumprod(1)"
    got, reason, report = verdict(right, right, "[torch.rand(8, 1024)]")
    assert got == "SAME", reason
    assert "larger values, for which the reference's own answer is not finite" in report.left_out


def test_tensors_that_a_candidate_has_not_are_said(verdict: Compare) -> None:
    right = "return torch.tanh(self.l(x) * getattr(self, 's', torch.ones(64)))"
    got, reason, report = verdict(
        right.replace("getattr(self, 's', torch.ones(64))", "self.s"),
        right,
        "[torch.randn(16, 64)]",
        init="self.l = nn.Linear(64, 64)\n        if type(self).__name__ == 'Model': self.s = torch.ones(64)",
    )
    assert got == "SAME", reason
    assert report.left_out == ["tensors that are neither parameters nor buffers (s) other than they are"]


# ---------------------------------------------------------------------------------------------------------- the parts


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def test_values_are_counted_beyond_the_sample() -> None:
    mask = torch.zeros(10000)
    mask[9000], mask[9001] = 1.0, 2.0
    assert contents.few_values(mask) == {0.0, 1.0, 2.0}
    assert contents.few_values(torch.arange(40.0)) is None
    assert contents.few_values(torch.tensor([0.0, float("-inf")])) == {0.0, -math.inf}
    assert contents.few_values(torch.tensor([0.0] * 9000 + [float("nan")])) is None
    assert contents.in_words({1.0, 0.0}) == "0 and 1"
    assert contents.in_words({2.5}) == "2.5"
    assert contents.in_words({-1.0, 0.0, 1.0}) == "-1, 0 and 1"
    assert contents.in_words(set(map(float, range(5)))) == "5 values from 0 to 4"


def test_fractions_are_of_inputs_of_one_value_alone() -> None:
    given = [torch.randn(8, 8), torch.ones(40), torch.zeros(40), (torch.rand(64) < 0.5).float(), torch.ones(40).long()]
    x, ones, zeros, mask, whole = variations.fill("fractions", given, generator())
    assert x is given[0]
    assert mask is given[3]
    assert whole is given[4]
    assert isinstance(ones, Tensor)
    assert isinstance(zeros, Tensor)
    assert float(ones.abs().min()) >= 0.25
    assert float(ones.abs().max()) <= 2
    assert 0 < int((ones < 0).sum()) < 30
    assert 0 < float(zeros.abs().max()) <= 1
    (_, ones, *_) = variations.fill("fractions of one sign", given, generator())
    assert isinstance(ones, Tensor)
    assert bool((ones > 0).all())
    with pytest.raises(contents.CannotVary, match=r"^$"):
        variations.fill("fractions", given[3:], generator())


@pytest.mark.parametrize("length", [4, 512, 8192])
def test_long_products_of_them_neither_vanish_nor_overflow(length: int) -> None:
    (one,) = variations.near([torch.rand(64, length)], generator(), True, length)
    (zero,) = variations.near([torch.rand(64, length)], generator(), False, length)
    assert isinstance(one, Tensor)
    assert isinstance(zero, Tensor)
    for products in (one.double().cumprod(1).abs(), (1 - zero.double()).cumprod(1)):
        assert 2.0**-16 < float(products.min()) < float(products.max()) < 2.0**16
    assert bool((one < 0).any())


def test_a_nan_stands_in_one_matrix_at_a_time() -> None:
    given = [torch.randn(8, 8), torch.randn(8), torch.randn(8, 8), torch.randn(2, 8, 8)]
    for name, i in (("a NaN in another input", 2), ("a NaN in a third input", 3)):
        out = variations.fill(name, given, generator())
        assert [int(t.isnan().sum()) for t in out if isinstance(t, Tensor)] == [int(j == i) for j in range(4)]
    more = [torch.randn(8, 8) for _ in range(6)]
    found = {i for seed in range(40) for i, t in enumerate(_later(more, seed)) if bool(t.isnan().any())}
    assert found == {3, 4, 5}
    for name, some in (("a NaN in a third input", given[:3]), ("a NaN in a later input", [given[0], *given[2:]])):
        with pytest.raises(contents.CannotVary, match=r"^$"):
            variations.fill(name, some, generator())
    vector = _later(given, 0)[1]  # the vector gets one by itself
    assert int(vector.isnan().sum()) == 1


def _later(given: list[Tensor], seed: int) -> list[Tensor]:
    out = variations.fill("a NaN in a later input", given, torch.Generator().manual_seed(seed))
    return [t for t in out if isinstance(t, Tensor)]


def test_which_inputs_have_to_lie_between_0_and_1() -> None:
    def limited(call: Callable[..., object], *inputs: Tensor) -> dict[int, str]:
        recorder = Recorder(inputs)
        with recorder:
            call(*inputs)
        return recorder.limited

    x, p, t = torch.randn(8), torch.rand(8), torch.rand(8)
    loss = "binary_cross_entropy"
    assert limited(F.binary_cross_entropy, p, t) == {0: loss, 1: loss}
    assert limited(lambda x, t: F.binary_cross_entropy(x.sigmoid(), t), x, t) == {1: loss}
    assert limited(lambda x, t: F.binary_cross_entropy((x * 2).clamp(0.1, 0.9), 1 - t), x, t) == {1: loss}
    assert limited(F.binary_cross_entropy_with_logits, x, t) == {}
    assert limited(lambda p: torch.bernoulli(p / 2), p) == {0: "bernoulli"}
    assert limited(lambda x: x * torch.empty_like(x).bernoulli_(0.5), x) == {}
    assert limited(lambda x: F.dropout(x, 0.5), x) == {}


def test_a_product_that_skips_zeros() -> None:
    x, w = torch.tensor([[1.0, 0.0], [2.0, 3.0]]), torch.tensor([[1.0, 2.0], [float("nan"), float("inf")]])
    with SkipsZeros():
        made = [x @ w, torch.addmm(torch.ones(2), x, w), x * w.flip(0), F.linear(x, w.T)]
    product = torch.tensor([[1.0, 2.0], [torch.nan, torch.inf]])
    assert all(torch.equal(torch.nan_to_num(a, 7.0), torch.nan_to_num(product, 7.0)) for a in (made[0], made[3]))
    assert torch.equal(made[1][0], torch.tensor([2.0, 3.0]))
    assert bool(made[1][1, 0].isnan())
    assert torch.equal(torch.nan_to_num(made[2], 7.0), torch.tensor([[7.0, 0.0], [2.0, 6.0]]))


def test_a_straight_through_estimator_is_what_it_lets_through() -> None:
    x, y, other = torch.tensor([1.0, torch.nan, torch.inf]), torch.tensor([1.0, -1.0, 1.0]), torch.zeros(3)
    forms = [
        lambda: x + (y - x).detach(),
        lambda: (y - x).detach() + x,
        lambda: x - (x - y).detach(),
        lambda: y - x.detach() + x,
        lambda: y + x - x.detach(),
        lambda: x - x.detach() + y,
        lambda: y + (x.view(3) - x.detach()),
    ]
    with StraightThrough() as mode:
        assert all(torch.equal(form(), y) for form in forms)
        assert mode.found == len(forms)
        # With other memory, or with memory that was written to in between, it is a sum like any other.
        assert bool((other + (y - x))[1].isnan())
        assert bool((x + (y - x.clone()))[1].isnan())
        assert bool(torch.add(x, y - x, alpha=2)[1].isnan())
        difference = y - x
        x.mul_(2)
        assert bool((x + difference)[1].isnan())
        assert mode.found == len(forms)


@pytest.mark.parametrize(("of_nan", "same"), [("-1.0", "SAME"), ("0.0", "DIFFERENT")])
def test_an_answer_without_the_straight_through_estimator(
    verdict: Compare,
    of_nan: str,
    same: str,
) -> None:
    """What the estimator lets through is right; for a NaN no other number is."""
    right = "return x + (torch.where(x >= 0, 1.0, -1.0) - x).detach()"
    other = f"return torch.where(x >= 0, 1.0, torch.where(x < 0, -1.0, {of_nan}))"
    got, reason, _ = verdict(right, other)
    assert got == same, reason
    assert same == "SAME" or "'a NaN'" in reason


def test_plain_tensors_are_found_by_name_and_put() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = torch.ones(3)
            self.p = nn.Parameter(torch.ones(4))

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.zeros(5)
            self.inner = Inner()
            self.blocks = [(nn.LayerNorm(6), {"w": torch.ones(7)})]
            self.again = self.scale
            self.alias = self.inner.p
            self.loop: list[Any] = []
            self.loop.append(self.loop)

    one, other = Outer(), Outer()
    found = plain.tensors(one)
    assert sorted(found) == ["blocks.0.0.bias", "blocks.0.0.weight", "blocks.0.1.w", "inner.own", "scale"]
    kept: list[str] = []
    changed = states.turn(found, generator(), kept)
    assert sorted(changed) == sorted(name for name in found if name != "inner.own")  # it has fewer than four entries
    assert kept == ["tensors that are neither parameters nor buffers (inner.own) other than they are"]
    assert plain.put(other, changed) == []
    assert all(torch.equal(plain.tensors(other)[name], t) for name, t in changed.items())
    assert plain.put(other, {"scale": torch.ones(5), "elsewhere": torch.ones(2)}) == ["elsewhere"]
    assert not torch.equal(other.scale, torch.ones(5))
    one.loop.clear()
    assert len(exact.hidden_modules(one)) == 1
    with pytest.raises(contents.CannotVary, match=r"^$"):
        states.turn({"table": torch.randn(8)}, generator(), kept)
    assert (
        states.not_given("edcba")
        == "tensors that are neither parameters nor buffers (a, b, c and 2 more) other than they are"
    )


def test_a_pattern_of_nan_says_nothing_of_tiles() -> None:
    right = torch.randn(64, 64)
    got = right.clone()
    got[:, 48:] = torch.nan
    truth = Truth("output", right, right.double())
    found = diagnosis.explain(got, [truth], judge(got, [truth]))
    assert found["pattern"] == ["NaN where the reference is finite", "all in the last 16 of 64 of axis 1"]
    skipped = right.clone()
    skipped[:, 32:] *= 1 + 2.0**-9
    skipped[3, 60] += 5
    found = diagnosis.explain(skipped, [truth], judge(skipped, [truth]))
    assert not [said for said in found["pattern"] if "operands" in said]


def test_an_attribute_may_be_named_as_a_method_is() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.buffers = [torch.ones(4)]
            self.parameters = torch.ones(5)

    assert sorted(plain.tensors(Model())) == ["buffers.0", "parameters"]
    assert plain.put(Model(), {}) == []


def test_nan_is_right_where_the_float64_run_has_it() -> None:
    right = torch.randn(16, 64)
    exact64 = right.double()
    right[3], exact64[3] = 0.0, torch.nan  # what attention in one kernel makes of a row of NaN
    got = right.clone()
    got[3] = torch.nan
    assert judge(got, [Truth("output", right, exact64)]).same
    assert judge(right, [Truth("output", right, exact64)]).same
    exact64[5, 0] = torch.inf
    got[5, 0] = torch.nan
    result = judge(got, [Truth("output", right, exact64)])
    assert not result.same
    found = diagnosis.explain(got, [Truth("output", right, exact64)], result)
    assert found["first"]["expected"] == float(right[5, 0])
