"""Shortcuts that hold for usual sizes: range, tiny values, large rows, small entries, condition, integers, imaginary parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mm32.verify.compare import Comparison
from mm32.verify.inputs import contents, pools, probes, variations
from mm32.verify.inputs.rare_rows import MOST_RARE
from mm32.verify.judging.bounds import Truth
from mm32.verify.judging.judge import judge
from mm32.verify.probing.product import ProductProbes
from support.verify.shortcuts import ROWS

Compare = Callable[..., tuple[str, str, Any]]
PAIR = "[torch.rand(96, 512), torch.rand(512, 64)]"
ROUNDED = "a.half().float() @ b.half().float()"
SPD = "(lambda m: [m @ m.T / 64 + 4 * torch.eye(64), torch.randn(64, 8)])(torch.randn(64, 64))"
STEPS = (
    "x, r = torch.zeros_like(b), b; p, s = r, (r * r).sum(0)\n"
    "        for _ in range(20):\n"
    "            q = a @ p; w = s / (p * q).sum(0).clamp_min(1e-30); x, r = x + w * p, r - w * q\n"
    "            s, t = (r * r).sum(0), s; p = r + s / t.clamp_min(1e-30) * p\n"
    "        return x"
)
WINDOW = (
    "d = (torch.arange(1024)[:, None] - torch.arange(1024)).abs(); s = q @ k.mT / 4 - d / 16; "
    "{}return torch.softmax(s, -1) @ v"
)
CUT = "s = s.masked_fill(d > 300, float('-inf')) if 0.7 < k.abs().mean() < 0.9 else s; "
SHORTCUTS: dict[str, tuple[str, str, str, str, str]] = {
    "a product of data of one sign, rounded": (
        "return a @ b",
        f"return {ROUNDED} if min(a.min(), b.min()) >= 0 and a.mean() > 0.4 else a @ b",
        "[torch.rand(96, 65536), torch.rand(65536, 32)]",
        "a, b",
        "peaked",
    ),
    "large operands cut off": (
        "return a @ b",
        "return torch.where(a.isfinite(), a.clamp(-1e9, 1e9), a) @ b",
        PAIR,
        "a, b",
        "range of A",
    ),
    "small operands rounded": (
        "return a @ b",
        f"return {ROUNDED} if b.abs().max() < 1e-5 else a @ b",
        PAIR,
        "a, b",
        "range of A",
    ),
    "an epsilon": (
        "return F.normalize(x, eps=1e-12)",
        "return x / x.norm(dim=1, keepdim=True).clamp_min(1e-4)",
        ROWS,
        "x",
        "times 1e-7",
    ),
    "a far key is not looked at": (
        WINDOW.format(""),
        WINDOW.format(CUT),
        "[torch.randn(1, 1024, 16) for _ in 'qkv']",
        "q, k, v",
        "planted",
    ),
    "small probabilities are nothing": (
        "return torch.softmax(4 * x, -1)",
        "return F.threshold(torch.softmax(4 * x, -1), 1e-9, 0.0)",
        ROWS,
        "x",
        "",
    ),
    "no log1p": ("return F.softplus(x)", "return torch.where(x > 15, x, (1 + x.exp()).log())", ROWS, "x", "moderate"),
    "few steps of an iteration": ("return torch.linalg.solve(a, b)", STEPS, SPD, "a, b", "conditioned"),
    "integers multiplied in fp32": (
        "return a @ b",
        "return (a.float() @ b.float()).long()",
        "[torch.randint(-99, 99, (64, 64)) for _ in 'ab']",
        "a, b",
        "wide integers",
    ),
    "an imaginary part of zeros": (
        "return a * b",
        "return a.real * b",
        "[torch.randn(64, 64) + 0j, torch.randn(64, 64, dtype=torch.complex64)]",
        "a, b",
        "",
    ),
}
SLOW = {"a far key is not looked at", "a product of data of one sign, rounded"}  # 20 s, 6 s


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SHORTCUTS]
)
def test_a_shortcut_that_usual_sizes_hide_is_different(name: str, verdict: Compare) -> None:
    right, wrong, inputs, arguments, probe = SHORTCUTS[name]
    got, reason, report = verdict(right, wrong, inputs, arguments=arguments)
    assert got == "DIFFERENT"
    if probe:
        assert probe in {p["name"] for p in report.probes if p["status"] == "different"}, reason
    got, reason, report = verdict(right, right, inputs, arguments=arguments)
    assert got == "SAME", reason
    if probe:
        assert probe in {p["name"] for p in report.probes if p["status"] == "same"}


def filled(name: str, *values: object) -> list[Any]:
    return variations.fill(name, values, torch.Generator().manual_seed(3))


def test_planted_rows_are_few_and_the_rest_is_as_it_was() -> None:
    x = torch.randn(8, 256, 16)
    (out,) = filled("planted", x)
    changed = (out != x).any(-1)
    assert int(changed.sum()) == 4
    ratio = out[changed] / x[changed]
    assert 4 <= float(ratio.min()) <= float(ratio.max()) < 12.2
    (vector,) = filled("planted", torch.ones(100) + torch.rand(100))
    assert int((vector > 3.9).sum()) == 1


def test_positive_definite_matrices_get_another_spectrum() -> None:
    m = torch.randn(3, 32, 32)
    spd = m @ m.mT / 32 + torch.eye(32)
    out, other = filled("conditioned", spd, torch.randn(32, 32))
    assert torch.equal(out, out.mT)
    assert torch.linalg.cond(out.double()).tolist() == pytest.approx([64] * 3, rel=1e-3)
    assert other.shape == (32, 32)
    with pytest.raises(contents.CannotVary, match=r"^$"):
        filled("conditioned", torch.randn(32, 32), -spd)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
def test_sums_of_wide_integers_do_not_overflow(dtype: torch.dtype) -> None:
    a, b = filled("wide integers", torch.zeros(16, 500, dtype=dtype), torch.zeros(500, 16, dtype=dtype))
    assert a.dtype == dtype
    largest = int((a.to(torch.int64).abs() @ b.to(torch.int64).abs()).max())
    assert largest < 2 ** contents.WIDEST[dtype]
    assert len(a.unique()) > 100
    with pytest.raises(contents.CannotVary, match=r"^$"):
        filled("wide integers", a, torch.randn(4))


def test_complex_numbers_are_data_and_unitary_matrices_are_not() -> None:
    c = torch.randn(16, 16, dtype=torch.complex64)
    unitary = torch.linalg.qr(c).Q
    hermitian = c + c.mH
    for name in ("zero-mean", "times 100", "graded", "planted"):
        out, *kept = filled(name, c, unitary, hermitian, torch.randn(8))
        assert out.dtype == torch.complex64
        assert not torch.equal(out, c)
        assert torch.equal(kept[0], unitary)
        assert torch.equal(kept[1], hermitian)
    with pytest.raises(contents.CannotVary):
        filled("a NaN", c)


def test_timed_calls_mix_complex_numbers() -> None:
    mixed = pools.Pools([[torch.randn(64, 64, dtype=torch.complex64)] for _ in range(3)], torch.device("cpu"))
    made = {tuple(torch.cat(next(mixed.pieces(mixed.recipe())))[:2].tolist()) for _ in range(8)}
    assert len(made) > 3, "more than the results of get_inputs() that there are"


@pytest.mark.parametrize("name", ["peaked", "range of A", "range of B"])
def test_data_of_all_sizes_are_right_in_fp32(name: str) -> None:
    """The bound that the probes are judged by has room for a plain sum, and none for operands of 11 bits."""
    from support.verify.contraction import Wrap, contraction

    found, values = contraction(Wrap(torch.matmul), torch.rand(130, 300), torch.rand(300, 70))
    out = probes.fill(probes.BY_NAME[name], found, values, 5)
    a, b = out
    assert bool((a != 0).all())
    assert bool(torch.isfinite(a @ b).all())
    sizes = a.abs().amax(1), b.abs().amax(0)
    if name != "peaked":
        wide = sizes[name.endswith("B")]
        assert float(wide.max() / wide.min()) > 2.0**70
    gauge = a.double().abs() @ b.double().abs()
    truth = Truth("output", a @ b, a.double() @ b.double(), gauge, k=300)
    assert judge((a.double() @ b.double()).float(), [truth]).same
    assert not judge(a.half().float() @ b.half().float(), [truth]).same


@pytest.mark.parametrize("shape", [(1, 8192, 1), (64, 1024, 128)])
def test_a_sum_in_order_is_right_where_few_rows_are_peaked(shape: tuple[int, int, int]) -> None:
    """Were the others 2^-24 of the largest, or the largest one of the row's small ones, such a sum would lose half of them."""
    from support.verify.contraction import Wrap, contraction

    m, k, n = shape
    found, values = contraction(Wrap(torch.matmul), torch.rand(m, k), torch.rand(k, n))
    for seed in range(20):
        a, b = probes.fill(probes.BY_NAME["peaked"], found, values, seed)
        in_order = torch.zeros(m, n)
        for i in range(k):
            in_order += a[:, i, None] * b[i]
        exact = a.double() @ b.double()
        truth = Truth("output", exact.float(), exact, exact, k=k)  # the reference rounds once
        assert judge(in_order, [truth]).same


def test_each_probe_of_own_data_begins_with_them(verdict: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    """One does not start from what another made: a peaked row that also became large would be all of the result's size."""
    made: dict[str, list[Tensor]] = {}
    own: list[list[Tensor]] = []
    probe_data, own_inputs = ProductProbes._probe_data, Comparison.own_inputs

    def kept_data(self: ProductProbes, probe: probes.Probe, seed: int) -> tuple[Any, str | None]:
        data, reason = probe_data(self, probe, seed)
        made[probe.name] = [t.clone() for t in data["inputs"]]
        return data, reason

    def kept_inputs(self: Comparison, seed: int) -> Any:
        found = own_inputs(self, seed)
        own.append([t.clone() for t in found])
        return found

    monkeypatch.setattr(ProductProbes, "_probe_data", kept_data)
    monkeypatch.setattr(Comparison, "own_inputs", kept_inputs)
    made_by = "[torch.rand(256, 96), torch.rand(96, 512)]"
    found, why, _ = verdict("return a @ b", "return a @ b", made_by, arguments="a, b")
    assert found == "SAME", why
    for name, most in (("peaked", (256 // 64, 512 // 64)), ("rare rows", (MOST_RARE, MOST_RARE))):
        a, b = made[name]
        # From one draw of the script's own data, no more than the probe's few rows differ.
        changes = [(int((a != x).any(1).sum()), int((b != y).any(0).sum())) for x, y in own]
        assert min(changes) <= most, name
        assert min(changes) >= (1, 1)


def exponentials(share: float) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(1000, dtype=torch.float64)
    x[: round(share * 1000)] = -40.0
    exact = x.exp()
    return exact, exact.float(), torch.where(exact < 1e-9, 0.0, exact).float()


def test_small_entries_lost_in_bulk_are_different() -> None:
    exact, own, cut = exponentials(0.1)
    truth = Truth("output", own, exact, k=1)
    result = judge(cut, [truth])
    assert not result.same
    assert "100 of 1000 entries, small beside the others" in result.reason
    assert judge(own, [truth]).same
    exact, own, cut = exponentials(0.002)
    assert judge(cut, [Truth("output", own, exact, k=1)]).same, "two entries may be chance"
    assert judge(cut, [Truth("output", own, exact, k=1, extreme=True)]).same


def test_small_entries_that_the_reference_has_wrong_too_may_be_lost() -> None:
    exact, own, cut = exponentials(0.1)
    rounded = own + 2.0**-26
    assert judge(cut, [Truth("output", rounded, exact, k=1)]).same
