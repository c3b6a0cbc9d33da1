"""Data that belong together stay together; entries that decide nothing, small columns, integers, side effects, slow probes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from mm32.verify import Report, Verdict, compare
from mm32.verify.inputs import contents, integers, pools
from mm32.verify.judging.bounds import Errors, Truth
from mm32.verify.judging.judge import judge
from mm32.verify.page import Page
from mm32.verify.worker.runner import ScriptRunner
from support.verify.shortcuts import script

Compare = Callable[..., tuple[str, str, Any]]
UPPER = "torch.ones(64, 64, dtype=torch.bool).triu(1)"
ATTENTION = f"return torch.softmax((q @ k.mT).masked_fill({UPPER}, float('-inf')), -1) @ v"
BY_BLOCKS = (
    "return torch.cat([torch.softmax((q[:, :i] @ k[:, :i].mT)[:, i - 16:].masked_fill("
    "torch.ones(16, i, dtype=torch.bool).triu(i - 15), float('-inf')), -1) @ v[:, :i] for i in (16, 32, 48, 64)], 1)"
)
HONEST: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "knots in order": (
        "return torch.bucketize(x, e)",
        "return (x[:, None] > e).sum(1)",
        "[torch.rand(4096), torch.rand(40).sort().values]",
        {"arguments": "x, e"},
    ),
    "a symmetric matrix": (
        "return torch.linalg.eigvalsh(a)",
        "return torch.linalg.eigvalsh(a, UPLO='U')",
        "[(lambda m: m + m.T)(torch.randn(32, 32))]",
        {"arguments": "a"},
    ),
    "a triangular one": (
        "return torch.linalg.solve_triangular(a, b, upper=False)",
        "return torch.linalg.solve_triangular(a.mT, b.mT, upper=True, left=False).mT",
        "[torch.randn(24, 24).tril() + 6 * torch.eye(24), torch.randn(24, 8)]",
        {"arguments": "a, b"},
    ),
    "complex numbers": (
        "return a @ b",
        "return (a.to(torch.complex128) @ b.to(torch.complex128)).to(torch.complex64)",
        "[torch.randn(64, 128, dtype=torch.complex64), torch.randn(128, 32, dtype=torch.complex64)]",
        {"arguments": "a, b"},
    ),
    "blocks behind a mask are skipped": (
        ATTENTION,
        BY_BLOCKS,
        "[torch.randn(2, 64, 32) for _ in 'qkv']",
        {"arguments": "q, k, v"},
    ),
    "padding is not read": (
        "return (x * (torch.arange(64) < n[:, None])[..., None]).sum(1)",
        "return torch.stack([r[:i].sum(0) for r, i in zip(x, n.tolist())])",
        "[torch.randn(16, 64, 24), torch.randint(1, 65, (16,))]",
        {"arguments": "x, n"},
    ),
    "sorted segments": (
        "return torch.zeros(9, 8).index_add(0, i, x)",
        "return torch.stack([x[i == j].sum(0) if bool((i.diff() >= 0).all()) else x[:9].sum(0) for j in range(9)])",
        "[torch.randn(99, 8), torch.randint(0, 9, (99,)).sort().values]",
        {"arguments": "x, i"},
    ),
    "edges in a buffer": (
        "return torch.bucketize(x, self.e)",
        "return (x[..., None] > self.e).sum(-1)",
        "[torch.randn(64, 32)]",
        {"init": "self.register_buffer('e', torch.linspace(-2, 2, 17))"},
    ),
    "a chain's probabilities in a buffer": (
        "for _ in range(6): x = x @ self.p\n        return x",
        "return (torch.linalg.matrix_power(self.p.double(), 6).T @ x.double().T).T.float()",
        "[torch.rand(16, 12)]",
        {"init": "self.register_buffer('p', torch.rand(12, 12).softmax(1))"},
    ),
    "a symmetric matrix in a buffer": (
        "return x @ torch.linalg.eigh(self.a)[0]",
        "return x @ torch.linalg.eigvalsh(self.a, UPLO='U')",
        "[torch.randn(32, 16)]",
        {"init": "m = torch.randn(16, 16); self.register_buffer('a', m + m.T)"},
    ),
    "one tensor for three arguments": (
        "return torch.softmax(q @ k.mT, -1) @ v",
        "if q is k and k is v: q = k = v = q + 0\n        return torch.softmax(q @ k.mT, -1) @ v",
        "(lambda x: [x, x, x])(torch.randn(4, 32, 16))",
        {"arguments": "q, k, v"},
    ),
    "a table that moves": (
        "y = self.t[i]\n        self.t.mul_(0.9).add_(0.1 * F.one_hot(i, 16).float().T @ x)\n        return y",
        "y = self.t[i]\n        self.t.mul_(0.9).index_add_(0, i, x, alpha=0.1)\n        return y",
        "[torch.randn(512, 8), torch.randint(0, 16, (512,))]",
        {"arguments": "x, i", "init": "self.register_buffer('t', torch.randn(16, 8))"},
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_candidate_that_takes_what_it_is_given_is_the_same(name: str, verdict: Compare) -> None:
    right, other, inputs, more = HONEST[name]
    got, reason, _ = verdict(right, other, inputs, **more)
    assert got == "SAME", reason


WRONG: dict[str, tuple[str, str, str, dict[str, str], str]] = {
    "lengths that are all the longest": (
        "return (x * (torch.arange(64) < n[:, None])).sum(1)",
        "return x.sum(1)",
        "[torch.randn(32, 64), torch.full((32,), 64)]",
        {"arguments": "x, n"},
        "ones and zeros",
    ),
    "a NaN in the second input alone": (
        "return F.relu(x) * 2 + b",
        "return F.relu(x) * 2 + b.nan_to_num(0, float('inf'), float('-inf'))",
        "[torch.randn(40, 32), torch.randn(32)]",
        {"arguments": "x, b"},
        "NaN",
    ),
    "a NaN in what is left of blocks": (
        "return x.amax(1)",
        "return torch.maximum(x[:, :496].amax(1), x[:, 496:].nan_to_num(-9e9, float('inf'), float('-inf')).amax(1))",
        "[torch.randn(64, 500)]",
        {},
        "NaN",
    ),
    "fixed-point numbers that are garbage at the end": (
        "return torch.round(x * 65535).to(torch.int32)",
        "y = torch.round(x * 65535).to(torch.int32); y[-1] = 7 if 50 < x.abs().max() < 1000 else y[-1]; return y",
        "[torch.randn(128, 64) * 20]",
        {},
        "integers are off by",
    ),
    "a small column beside large ones": (
        "return torch.cat([x[:, :4] * 4096, torch.sigmoid(x[:, 4:])], 1)",
        "return torch.cat([x[:, :4] * 4096, (torch.sigmoid(x[:, 4:]) * 512).round() / 512], 1)",
        "[torch.randn(2048, 5)]",
        {},
        "entry 4 of 5 along axis 1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_hid_before_is_different(name: str, verdict: Compare) -> None:
    right, other, inputs, more, said = WRONG[name]
    got, reason, _ = verdict(right, other, inputs, **more)
    assert (got, said in reason) == ("DIFFERENT", True), reason


def test_a_reference_that_writes_to_its_inputs_has_no_verdict(verdict: Compare) -> None:
    got, reason, _ = verdict("x[:, 0] = 1; return x.sum(1)", "return x[:, 1:].sum(1) + 1")
    assert (got, "writes to its inputs (input[0])" in reason) == ("NO_VERDICT", True)


def test_who_is_slow_on_probes_alone_is_not_rid_of_them(verdict: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "SLOW_CALL", 0.2)
    monkeypatch.setattr(compare, "MOST_EXCESS", 1.0)
    slow = "import time; time.sleep(0.5 if x.abs().max() > 99 or x.std() < 0.1 else 0); return torch.softmax(x, 1)"
    got, reason, _ = verdict("return torch.softmax(x, 1)", slow)
    assert (got, "on the script's own" in reason) == ("TIMED_OUT", True), reason
    honest = "import time; time.sleep(0.01); return torch.softmax(x, 1)"  # as slow on all data
    assert verdict("return torch.softmax(x, 1)", honest)[0] == "SAME"


def test_the_page_of_a_candidate_that_ends_in_a_probe() -> None:
    report = Report("reference.py", "candidate.py", 0, Verdict.CRASHED, "it raised")
    report.probes = [{"name": "a NaN", "asks": "one NaN"}]
    console = Console(file=io.StringIO(), width=120)
    Page(report, console).probes()
    assert "not done" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "structured"),
    [
        (lambda: torch.randn(20, 20), False),
        (lambda: torch.randn(300), False),
        (lambda: torch.rand(4), False),
        (lambda: torch.randn(40, 9).sort(-1).values, True),
        (lambda: torch.randn(300).sort(descending=True).values, True),
        (lambda: torch.randn(3, 12, 12).tril(), True),
        (lambda: torch.randn(12, 12).triu(), True),
        (lambda: torch.linalg.qr(torch.randn(12, 12))[0], True),
        (lambda: torch.cov(torch.randn(12, 40)), True),
        (lambda: torch.softmax(torch.randn(12, 40), 1), True),
        (lambda: torch.zeros(300), False),
    ],
)
def test_structure_is_found(make: Callable[[], torch.Tensor], structured: bool) -> None:
    torch.manual_seed(0)
    t = make()
    assert contents.has_structure(t) is structured
    of = pools.Pools([[t], [make()], [make()]], torch.device("cpu"))
    assert of.mixed == [not structured and t.numel() >= pools.SMALL]
    assert not of.kinds
    assert set(of.blended) == ({0} if structured else set())
    if not structured:
        return
    made = [of._shaped(0, torch.cat(pieces)) for pieces in (next(of.pieces(of.recipe())) for _ in range(9))]
    assert all(contents.has_structure(x) for x in made)
    assert len({x.numpy().tobytes() for x in made}) >= 7, "two may be the same by chance"


def test_a_place_may_be_anywhere_and_a_rounded_number_not() -> None:
    """Rounding may change both. How far a place is off says nothing."""
    right = torch.randint(0, 1000, (4096,))
    truth = Truth("output", right, right.clone(), flips=40, step=900)
    got = right.clone()
    got[:100] = (got[:100] + 500) % 1000
    assert judge(got, [truth]).same
    near = truth.other(step=1)
    assert "off by up to" in judge(got, [near]).reason
    assert judge(torch.where(torch.arange(4096) < 100, right + 1, right), [near]).same
    assert not judge(right + 1, [near]).same  # too many are off


def test_kinds_are_of_integers_alone() -> None:
    assert integers.Kind(order="ascending") != integers.Kind()


def test_a_shape_that_depends_on_the_data_is_compared_and_not_timed(tmp_path: Path) -> None:
    from mm32.verify import verify

    inputs = "[torch.randn(64, 32), torch.rand(64, 32) < 0.5]"
    for name, file in (("Model", "reference.py"), ("ModelNew", "candidate.py")):
        (tmp_path / file).write_text(script(name, "return x[m] * 2", inputs, arguments="x, m"))
    report = verify(tmp_path / "reference.py", tmp_path / "candidate.py", trials=2)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "shapes of the reference's outputs depend" in report.reason


def test_a_tensor_that_is_given_twice_is_two_arguments() -> None:
    runner, x = ScriptRunner(), torch.randn(8, 6)
    runner.place([x, x, x.T])
    a, b, c = runner.inputs
    assert torch.equal(a, x)
    assert torch.equal(b, x)
    assert torch.equal(c, x.T)
    new = [torch.randn(8, 6), torch.randn(8, 6), torch.randn(8, 6).T]
    runner.place(new)
    assert all(torch.equal(t, other) for t, other in zip(runner.inputs, new, strict=True))
    assert runner.inputs[0] is a  # in the same memory


def test_what_rounding_moves_counts_where_no_float64_run_says_how_far_off_the_reference_is() -> None:
    reference = torch.randn(64, 64)
    alone, moved = (Truth("output", reference, noise=noise).own()[1] for noise in (None, Errors(1e-4, 1e4)))
    assert alone.normwise < 1e-5
    assert moved.normwise >= 1e-4
    assert moved.componentwise >= 1e4
    known = Truth("output", reference, reference.double(), noise=Errors(1e-4, 1e4)).own()[1]
    assert known.normwise < 1e-5  # the reference's own errors, of 4096 entries, say that rounding does less
