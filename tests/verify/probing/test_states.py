"""Other parameters and buffers: zeros that become large, weights that become negative, integers, what belongs to nobody else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mm32.verify.inputs import states
from mm32.verify.inputs.contents import CannotVary
from mm32.verify.probing import later_parameters
from mm32.verify.worker import runner
from support.verify import in_process
from support.verify.shortcuts import script

Compare = Callable[..., tuple[str, str, Any]]
ROWS = "[torch.randn(48, 64)]"
DECAY = (
    "a, h = torch.sigmoid(self.b), torch.zeros_like(x[:, 0])\n"
    "        for t in range({}, x.shape[1]): h = a * h + torch.tanh(x[:, t])\n"
    "        return h"
)
BUFFER = "self.register_buffer('b', {})"
SHORTCUTS: dict[str, tuple[str, str, str, str, str]] = {
    "a gate that starts at a half forgets": (
        DECAY.format(0),
        DECAY.format("x.shape[1] - 48 if x.isfinite().all() else 0"),
        "self.b = nn.Parameter(torch.zeros(16))",
        "[torch.randn(4, 160, 16)]",
        "large parameters",
    ),
    "a limit of a deviation": (
        "s = self.b.clamp(-5, 2); return (x * torch.exp(-s)).square().sum(1) + s.sum()",
        "s = self.b; return (x * torch.exp(-s)).square().sum(1) + s.sum()",
        "self.b = nn.Parameter(torch.zeros(64))",
        ROWS,
        "large parameters",
    ),
    "a network that forgets, where eight times its weights is chaos": (
        "return self.rnn(x)[1][0]",
        "return self.rnn(x[:, -48:] if x.isfinite().all() else x)[1][0]",
        "self.rnn = nn.RNN(16, 32, batch_first=True)",
        "[torch.randn(8, 256, 16)]",
        "parameters times 4",
    ),
    "decays that never grow": (
        "return x * torch.exp(self.a.cumsum(0))",
        "return x * torch.exp(self.a.cumsum(0).clamp(max=0))",
        "self.a = nn.Parameter(-torch.rand(64))",
        ROWS,
        "negative parameters",
    ),
    "decays that are taken for negative": (
        "return x * torch.exp(self.a)",
        "return x * torch.exp(-self.a.abs())",
        "self.a = nn.Parameter(-torch.rand(64))",
        ROWS,
        "parameters",
    ),
    "a limit moved before a scale": (
        "return (self.norm(x)).clamp(-2, 2)",
        "w, b = self.norm.weight, self.norm.bias; s = w.sign(); y = F.layer_norm(x, (64,))\n"
        "        return torch.maximum(torch.minimum(y * s, (2 - b * 1) / w.abs()), (-2 - b) / w.abs()) * w.abs() + b",
        "self.norm = nn.LayerNorm(64)",
        ROWS,
        "rare entries of parameters",
    ),
    "a softmax of a norm without its maximum": (
        "return torch.softmax(self.norm(x), -1)",
        "e = torch.exp(self.norm(x)); return e / e.sum(-1, keepdim=True)",
        "self.norm = nn.LayerNorm(64)",
        ROWS,
        "large scales",
    ),
    "a maximum taken before a norm": (
        "return F.max_pool1d(self.norm(x), 4)",
        "return self.norm(F.max_pool1d(x, 4))",
        "self.norm = nn.BatchNorm1d(16).eval()",
        "[torch.randn(8, 16, 32)]",
        "parameters",
    ),
    "an order": (
        "return x[:, self.b] * self.b",
        "return x * self.b",
        BUFFER.format("torch.arange(64)"),
        ROWS,
        "integer buffers",
    ),
    "zero points": (
        "return x - self.b",
        "return x * 1.0",
        BUFFER.format("torch.zeros(64, dtype=torch.int8)"),
        ROWS,
        "integer buffers",
    ),
    "a mask": ("return x * self.b", "return x * 1.0", BUFFER.format("torch.ones(64) > 0"), ROWS, "integer buffers"),
}
SLOW = {"a network that forgets, where eight times its weights is chaos"}  # 20 s


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SHORTCUTS]
)
def test_a_shortcut_for_parameters_as_they_start_is_different(name: str, verdict: Compare) -> None:
    right, wrong, init, inputs, probe = SHORTCUTS[name]
    got, reason, report = verdict(right, wrong, inputs, init=init)
    assert got == "DIFFERENT"
    assert probe in {p["name"] for p in report.probes if p["status"] == "different"}, reason
    got, reason, report = verdict(right, right, inputs, init=init)
    assert got == "SAME", reason
    assert probe in {p["name"] for p in report.probes if p["status"] == "same"}


def test_a_root_of_a_parameter_keeps_it_positive(verdict: Compare) -> None:
    init = "self.b = nn.Parameter(torch.ones(64))"
    got, reason, report = verdict("return x * self.b.sqrt()", "return self.b.sqrt() * x", ROWS, init=init)
    assert got == "SAME", reason
    assert "parameters of one sign" in {p["name"] for p in report.probes if p["status"] == "same"}
    assert "parameters" not in {p["name"] for p in report.probes}


def test_a_buffer_that_the_candidate_is_not_given_is_left_alone(verdict: Compare) -> None:
    init = (
        "self.register_buffer('b', torch.linspace(1, 2, 64), persistent=False); self.c = nn.Parameter(torch.ones(64))"
    )
    got, reason, _ = verdict(
        "return torch.tanh(x) * self.b * self.c", "return self.b * torch.tanh(x) * self.c", ROWS, init=init
    )
    assert got == "SAME", reason


def test_a_buffer_that_has_to_stay_as_it_is_is_named(verdict: Compare) -> None:
    init = BUFFER.format("torch.ones(48, 48, dtype=torch.bool).tril()")
    right = "return torch.softmax((x @ x.mT).masked_fill(~self.b, float('-inf')), -1)"
    got, reason, report = verdict(right, right, ROWS, init=init)
    assert got == "SAME", reason
    assert "buffer 'b' other than in blocks" in report.left_out


def test_what_cannot_be_changed_together_is_changed_alone(verdict: Compare) -> None:
    init = f"{BUFFER.format('torch.zeros(64, dtype=torch.long)')}; self.register_buffer('c', torch.ones(64) > 0)"
    right = "assert not self.b.any(); return x * self.c"
    got, reason, report = verdict(right, right, ROWS, init=init)
    assert got == "SAME", reason
    assert "buffer 'b' other than it is" in report.left_out
    got, reason, _ = verdict(right, right.replace(" * self.c", " * 1.0"), ROWS, init=init)
    assert got == "DIFFERENT", reason


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_perturbed_parameters_are_neither_ones_nor_zeros_and_variances_stay_positive() -> None:
    model = nn.BatchNorm2d(16)
    states.perturb(model, drawn())
    for t in (model.weight, model.bias, model.running_mean):
        assert torch.unique(t.detach()).numel() == 16  # type: ignore[union-attr]
    assert bool((model.running_var > 0).all())  # type: ignore[union-attr,operator]
    assert int((model.weight < 0).sum()) == 4
    other = nn.BatchNorm2d(16)
    states.perturb(other, drawn(), signs=False)
    assert bool((other.weight > 0).all())
    assert torch.equal(other.weight, model.weight.abs())


def test_zeros_beside_numbers_become_numbers_and_positive_numbers_get_signs() -> None:
    model = nn.Module()
    model.pruned = nn.Parameter(torch.randn(64, 32, generator=drawn()) * (torch.rand(64, 32, generator=drawn(1)) < 0.5))
    model.scales = nn.Parameter(torch.rand(64, generator=drawn()) + 0.1)
    model.lower = nn.Parameter(torch.randn(16, 16, generator=drawn()).tril())
    model.register_buffer("variance", torch.rand(64, generator=drawn()) + 0.1)
    zeros = model.pruned == 0
    kept = states.perturb(model, drawn())
    filled = model.pruned.detach()[zeros].abs()
    assert float(filled.min()) > 0.4, "half of what the others are"
    assert float(filled.max()) < 1.2
    assert 0.4 < float((model.pruned.detach()[zeros] < 0).float().mean()) < 0.6
    assert int((model.scales < 0).sum()) == 16
    assert bool((model.variance > 0).all())
    assert not bool(model.lower.detach().triu(1).any())
    assert kept == ["parameter 'lower' other than triangular"]


@pytest.mark.parametrize(
    ("weight", "wrong"),
    [
        ("torch.rand(64) + 0.1", "return x * self.w.abs()"),
        ("torch.randn(64) * (torch.arange(64) % 2)", "return x * self.w * (torch.arange(64) % 2)"),
    ],
    ids=["positive", "zeros"],
)
def test_signs_and_zeros_of_a_parameter_are_nothing_to_rely_on(verdict: Compare, weight: str, wrong: str) -> None:
    init = f"self.w = nn.Parameter({weight})"
    got, reason, _ = verdict("return x * self.w", "return self.w * x", ROWS, init=init)
    assert got == "SAME", reason
    got, reason, _ = verdict("return x * self.w", wrong, ROWS, init=init)
    assert got == "DIFFERENT", reason
    assert "probe 'parameters'" in reason


def test_zeros_become_large_and_of_both_signs() -> None:
    model = nn.Linear(64, 64)
    nn.init.zeros_(model.bias)
    before = model.weight.detach().clone()
    states.enlarge(model, drawn())
    size = model.bias.detach().abs()
    assert float(size.min()) >= 0.5
    assert 3.9 < float(size.max()) <= 4
    assert 24 < int((model.bias < 0).sum()) < 40
    assert torch.equal(model.weight, before * 8)


OTHERS: dict[str, tuple[Tensor, Callable[[Tensor], bool]]] = {
    "a permutation": (torch.arange(64), lambda t: torch.equal(t.sort().values, torch.arange(64))),
    "rows of places": (
        torch.stack([torch.randperm(64) for _ in range(4)]) * 2,
        lambda t: bool((t.sort(-1).values == torch.arange(64) * 2).all()),
    ),
    "zero points": (torch.zeros(64, dtype=torch.int8), lambda t: bool((t >= 0).all() and (t < 4).all() and t.any())),
    "ones": (torch.ones(64, dtype=torch.int64), lambda t: t.unique().tolist() == [0, 1]),
    "lengths": (torch.full((16,), 40), lambda t: bool((t > 0).all() and (t <= 40).all())),
    "booleans": (torch.rand(8, 64) > 0.5, lambda t: t.dtype == torch.bool),
    "all true": (torch.ones(8, 64, dtype=torch.bool), lambda t: int((~t).sum()) == 32),
    "int8 weights": (torch.randint(-128, 128, (16, 16), dtype=torch.int8), lambda t: t.dtype == torch.int8),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_integers_are_of_the_same_kind(name: str) -> None:
    own, kept = OTHERS[name]
    for seed in range(5):
        new, said = states.other(own, drawn(seed))
        assert new is not None, said
        assert (new.shape, new.dtype) == (own.shape, own.dtype)
        assert not torch.equal(new, own)
        assert kept(new)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (torch.tensor([0, 3, 3, 8, 20]), "in order"),
        (torch.ones(8, 16, 16, dtype=torch.bool).triu(1), "in blocks"),
        ((torch.arange(64)[:, None] - torch.arange(64)).abs() < 8, "in blocks"),
        (torch.tensor(7), "7"),
    ],
)
def test_integers_with_structure_stay_as_they_are(own: Tensor, said: str) -> None:
    assert states.other(own, drawn()) == (None, said)


def test_zeros_that_may_be_places_stay_zeros_on_a_card() -> None:
    model = nn.Module()
    model.register_buffer("place", torch.zeros(8, dtype=torch.int64))
    kept: list[str] = []
    with pytest.raises(CannotVary):
        states.exchange(model, drawn(), (), lambda: False, kept, safe=False)
    assert kept == ["buffer 'place' other than zeros"]
    states.exchange(model, drawn(), (), lambda: False, kept)
    assert bool(model.place.any())


class Hides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.BatchNorm1d(3)
        self.register_buffer("total", torch.ones(2))
        self.weight = nn.Parameter(torch.ones(4))

    def named_buffers(self, *args: Any, **fields: Any) -> Any:
        return iter(())


def test_buffers_are_found_whatever_the_class_says_of_them() -> None:
    model = Hides()
    assert runner.held(model, "total") is model.total
    assert runner.held(model, "weight") is model.weight
    assert runner.held(model, "inner.running_mean") is model.inner.running_mean
    assert runner.held(model, "inner.none") is runner.held(model, "other.total") is None
    del model._buffers["total"]
    assert runner.held(model, "total") is None
    scripted = torch.jit.script(nn.Sequential(nn.BatchNorm1d(3)))
    assert torch.equal(runner.held(scripted, "0.running_var"), torch.ones(3))


def test_generators_are_seeded_whatever_a_script_puts_in_the_place_of_the_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(5)
    right = torch.rand(3)
    for name in ("torch.manual_seed", "random.seed", "numpy.random.seed"):
        monkeypatch.setattr(name, lambda *_: None)
    found = []
    for _ in range(2):
        runner.seed_everything(5)
        found.append((torch.rand(3).tolist(), random.random(), np.random.rand()))  # noqa: NPY002
    assert found[0] == found[1]
    assert found[0][0] == right.tolist()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (
            "self.w = getattr(self, 'w', self.l.weight.sum(0).detach().clone()); return x @ self.w + self.l.bias.sum()",
            True,
        ),
        ("return x @ self.l.weight.sum(0) + self.l.bias.sum()", False),
        # It packs a small part of them.
        (
            "self.b = getattr(self, 'b', self.l.bias[:8].sum().detach().clone())\n"
            "        return x @ self.l.weight.sum(0) + self.l.bias[8:].sum() + self.b",
            True,
        ),
        # It looks at the version of the weight, which a change in place raises.
        (
            "k = (self.l.weight.data_ptr(), self.l.weight._version)\n"
            "        if getattr(self, 'k', None) != k: self.k, self.w = k, self.l.weight.sum(0).detach()\n"
            "        return x @ self.w + self.l.bias.sum()",
            False,
        ),
    ],
)
def test_parameters_that_are_looked_at_once_are_named(verdict: Compare, wrong: str, named: bool) -> None:
    got, reason, report = verdict("return self.l(x).sum(1)", wrong, ROWS, init="self.l = nn.Linear(64, 64)")
    assert got == "SAME", reason
    assert (later_parameters.SAYS in report.left_out) == named


def test_a_buffer_that_each_call_changes_is_no_parameter_that_is_looked_at_once(verdict: Compare) -> None:
    right = "self.b.mul_(0.9).add_(0.1 * x.mean(0)); return x * self.b"
    other = "self.b.copy_(0.9 * self.b + 0.1 * x.mean(0)); return self.b * x"
    got, reason, report = verdict(right, other, ROWS, init=BUFFER.format("torch.rand(64)"))
    assert got == "SAME", reason
    assert later_parameters.SAYS not in report.left_out


KERNEL = (
    "k = lambda a, b: torch.exp(-0.5 * (a[:, None] - b).square().sum(-1))\n"
    "        l = torch.linalg.cholesky(k(x, x) + torch.exp(self.s) * torch.eye(96)); v = k(x, z)\n        "
)


@pytest.mark.parametrize("seed", [1, 2])
def test_where_rounding_alone_makes_the_reference_raise_nothing_is_said(verdict: Compare, seed: int) -> None:
    """With less noise than fp32 has bits, a kernel matrix is not positive definite in some roundings of it."""
    right = KERNEL + "return (v.mT @ torch.cholesky_solve(y[:, None], l))[:, 0]"
    other = KERNEL + (
        "w = torch.linalg.solve_triangular(l, torch.cat([v, y[:, None]], 1), upper=False); return w[:, :-1].mT @ w[:, -1]"
    )
    init, made = (
        "self.s = nn.Parameter(torch.tensor(-2.0))",
        "[torch.randn(96, 3), torch.randn(96), torch.randn(64, 3)]",
    )
    got, reason, report = verdict(right, other, made, init=init, arguments="x, y, z", seed=seed)
    assert got == "SAME", reason
    assert "single parameters times 4" in {p["name"] for p in report.probes}, "a milder probe takes its place"


def test_a_constant_buffer_that_the_candidate_lacks_leaves_the_probes_of_parameters(
    verdict: Compare, tmp_path: Path
) -> None:
    """Attention in which the candidate makes the causal mask itself, as most rewrites do."""
    init = "self.w = nn.Linear(16, 16, bias=False); self.register_buffer('mask', torch.ones(24, 24).tril())"
    right = "return (self.w(x) @ x.mT).masked_fill(self.mask == 0, float('-inf')).softmax(-1) @ x"
    masked = "m = torch.ones(24, 24).tril() == 0; w = self.w.weight{}\n        "
    masked += "return (x @ w.mT @ x.mT).masked_fill(m, float('-inf')).softmax(-1) @ x"
    made = "[torch.randn(4, 24, 16)]"
    reference, candidate = tmp_path / "r.py", tmp_path / "c.py"
    reference.write_text(script("Model", right, made, init))
    for of, expected in (("", "SAME"), (".clamp(-0.3, 0.3)", "DIFFERENT")):
        candidate.write_text(script("ModelNew", masked.format(of), made, init.partition(";")[0]))
        got, reason, report = in_process.compare(reference, candidate)
        assert got == expected, reason
        assert (report.parameters_by, {p["status"] for p in report.probes if p["name"] == "large parameters"}) == (
            "copy",
            {"same" if expected == "SAME" else "different"},
        )
        assert "buffer 'mask' other than it is" in report.left_out


def test_weights_packed_again_only_by_load_state_dict_are_named(verdict: Callable[..., tuple[str, str, Any]]) -> None:
    """An optimizer writes to the weights themselves, so a hook of load_state_dict is no help."""
    init = "self.l = torch.nn.Linear(16, 8)"
    again = "\n        self.packed = None\n    def load_state_dict(self, *a, **k):\n        self.packed = None\n"
    again += "        return super().load_state_dict(*a, **k)\n    def unused(self):\n        pass"
    packs = "if self.packed is None: self.packed = self.l.weight.detach().T.contiguous()\n"
    packs += "        return x @ self.packed + self.l.bias"
    right = "return torch.nn.functional.linear(x, self.l.weight, self.l.bias)"
    got, reason, report = verdict(right, packs, "[torch.randn(32, 16)]", init=init + again)
    assert got == "SAME", reason
    assert later_parameters.SAYS in report.left_out


@pytest.mark.parametrize("zeroes", [True, False])
def test_an_output_that_the_next_call_changes_is_named(
    zeroes: bool, verdict: Callable[..., tuple[str, str, Any]]
) -> None:
    wrong = "out = x * 2\n        if getattr(self, 'last', None) is not None and %s: self.last.zero_()\n"
    wrong += "        self.last = out\n        return out"
    got, reason, report = verdict("return x * 2", wrong % zeroes, "[torch.randn(32, 16)]")
    assert got == "SAME", reason
    assert any("outputs that are kept over the next call" in said for said in report.left_out) == zeroes
