"""Sums in order (judging/in_order.py): what one fp32 accumulator makes of a sum, and what an honest kernel may be off by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mm32.verify.judging import exact, widened
from mm32.verify.judging.bounds import Errors, Truth
from mm32.verify.judging.in_order import STARTS, WAYS, InOrder
from mm32.verify.judging.judge import judge
from mm32.verify.reference import float64

Compare = Callable[..., tuple[str, str, Any]]
SUMS = "import numpy as np; s = lambda t: torch.from_numpy(np.add.accumulate(t.numpy(), -1)[..., -1:].copy()); "
NORM = SUMS + "d = x - s(x) / x.shape[-1]; return d * torch.rsqrt(s(d * d) / x.shape[-1] + 1e-5)"
MSE = SUMS + "d = (x - y).reshape(-1); return (s(d * d) / d.numel()).reshape(())"


def one_by_one(terms: Tensor, way: int) -> float:
    """Return the sum of a vector by a loop of fp32 additions, from the first term, the last one or the middle on."""
    order = list(range(len(terms)))
    order = (
        order[::-1] if way == 1 else order[(len(order) + 1) // 2 :] + order[: (len(order) + 1) // 2] if way else order
    )
    total = np.float32(0)
    for i in order:
        total = np.float32(total + np.float32(float(terms[i])))
    return float(total)


def in_mode(way: int, call: Callable[[], Tensor]) -> Tensor:
    mode = InOrder(way)
    with mode:
        out = call()
    assert mode.sums
    assert not mode.left_out
    return out


@pytest.mark.parametrize("way", range(STARTS))
def test_sums_are_those_of_one_accumulator(way: int) -> None:
    t = (torch.randn(6, 1000).double() * 100 + 7).float().double()
    assert in_mode(way, lambda: t.sum(1)).tolist() == [one_by_one(row, way) for row in t]
    assert float(in_mode(way, lambda: t.sum())) == one_by_one(t.reshape(-1), way)
    columns = in_mode(way, lambda: t.sum(0, keepdim=True))
    assert columns.tolist() == [[one_by_one(column, way) for column in t.T]]
    assert in_mode(way, lambda: t.mean(1)).tolist() == [one_by_one(row, way) * (6 / 6000) for row in t]
    lengths = in_mode(way, lambda: torch.linalg.vector_norm(t, dim=1))
    assert torch.allclose(lengths, t.square().sum(1).sqrt(), rtol=1e-5, atol=0)
    assert not torch.equal(lengths, t.square().sum(1).sqrt())


@pytest.mark.parametrize("way", range(STARTS))
@pytest.mark.parametrize("at_once", [True, False], ids=["by terms", "by updates"])
def test_products_are_those_of_one_accumulator(way: int, at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mm32.verify.judging.in_order.AT_ONCE", 1 << 26 if at_once else 0)
    a, b = (torch.randint(-4, 5, shape).double() * 2.0**20 for shape in ((5, 301), (301, 7)))
    a[:, 50], b[50] = 2.0**33, 2.0**33  # terms added to this one lose bits in fp32, so that the order decides
    right = torch.tensor([[one_by_one(a[i] * b[:, j], way) for j in range(7)] for i in range(5)], dtype=torch.float64)
    assert not torch.equal(right, a @ b)
    assert torch.equal(in_mode(way, lambda: a @ b), right)
    assert torch.equal(in_mode(way, lambda: torch.mv(a, b[:, 0])), right[:, 0])
    assert float(in_mode(way, lambda: torch.dot(a[0], b[:, 0]))) == float(right[0, 0])
    assert torch.equal(in_mode(way, lambda: torch.bmm(a.expand(2, 5, 301), b.expand(2, 301, 7)))[1], right)
    bias = torch.randn(7).double()
    assert torch.equal(in_mode(way, lambda: torch.addmm(bias, a, b, beta=0.5, alpha=2.0)), 0.5 * bias + 2 * right)
    column = torch.randn(5).double()
    assert torch.equal(in_mode(way, lambda: torch.addmv(column, a, b[:, 0])), column + right[:, 0])


def test_equal_terms_are_rounded_otherwise_with_other_last_bits() -> None:
    t = torch.full((1, 100_000), 0.7).double()
    errors = [float(abs(in_mode(way, lambda: t.sum(1)) / t.sum(1) - 1)) for way in (0, STARTS)]
    assert WAYS == 2 * STARTS
    assert errors[0] != errors[1]
    assert max(errors) < 1e-2


def test_norms_are_taken_apart() -> None:
    model = torch.nn.LayerNorm(512).requires_grad_(False)
    x = torch.randn(4, 512)
    made = exact.in_order(model, [x], [], 0)
    right = model.double()(x.double())
    assert made.dtype == torch.float64
    assert 0 < float((made - right).norm() / right.norm()) < 1e-6
    assert exact.in_order(torch.nn.ReLU(), [x], [], 0) is None, "it has no sums"


@pytest.mark.parametrize(
    ("right", "plain", "inputs", "arguments"),
    [
        ("return F.layer_norm(x, (8192,))", NORM, "[torch.randn(16, 8192)]", "x"),
        ("return F.mse_loss(x, y)", MSE, "[torch.randn(64, 1024), torch.randn(64, 1024)]", "x, y"),
        ("return x @ y", SUMS + "return s(x * y.T)", "[torch.randn(8, 2048), torch.randn(2048, 1)]", "x, y"),
        (
            "return x.cumsum(1)",
            "import numpy as np; return torch.from_numpy(np.add.accumulate(x.numpy(), 1))",
            "[torch.randn(2, 65536)]",
            "x",
        ),
    ],
    ids=["layer norm", "loss", "matrix-vector product", "running sum"],
)
def test_one_accumulator_is_the_same(right: str, plain: str, inputs: str, arguments: str, verdict: Compare) -> None:
    found, why, _ = verdict(right, plain, inputs, arguments=arguments)
    assert found == "SAME", why


@pytest.mark.parametrize(
    ("right", "wrong", "inputs", "arguments"),
    [
        ("return F.layer_norm(x, (8192,))", "return F.layer_norm(x.bfloat16().float(), (8192,))", "[torch.randn(16, 8192)]", "x"),
        (
            "return F.mse_loss(x, y)",
            MSE.replace("s(d * d)", "1.00003 * s(d * d)"),
            "[torch.randn(256), torch.randn(256)]",
            "x, y",
        ),
        (
            "return x @ y",
            "return x.half().float() @ y.half().float()",
            "[torch.randn(8, 2048), torch.randn(2048, 1)]",
            "x, y",
        ),
    ],
    ids=["layer norm of bf16", "loss with a factor", "product of fp16"],
)  # fmt: skip
def test_what_no_order_explains_is_different(
    right: str, wrong: str, inputs: str, arguments: str, verdict: Compare
) -> None:
    found, why, _ = verdict(right, wrong, inputs, arguments=arguments)
    assert found == "DIFFERENT", why


def test_one_accumulator_is_the_same_on_a_part_of_the_batch(verdict: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(float64.SLICE_ABOVE, "cpu", 0.0)
    found, why, report = verdict("return F.layer_norm(x, (8192,))", NORM, "[torch.randn(16, 8192)]")
    assert found == "SAME", why
    assert any("of the batch's 16 entries" in note for note in report.notes), report.notes


def test_a_run_that_takes_too_long_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = torch.nn.LayerNorm(64).requires_grad_(False), torch.randn(4, 64)
    assert exact.in_order(model, [x], [], 0) is not None
    monkeypatch.setattr("mm32.verify.judging.in_order.BUDGET", -1.0)
    assert exact.in_order(model, [x], [], 0) is None
    assert model.weight.dtype == torch.float32, "the model is as it was"


def test_odd_operands_are_left_to_torch() -> None:
    with InOrder(0):
        assert float(torch.tensor(3.0, dtype=torch.float64).sum()) == 3
        assert torch.zeros(2, 0, dtype=torch.float64).sum(1).tolist() == [0, 0]
        assert torch.zeros(0, 4, dtype=torch.float64).mean(1).shape == (0,)
        assert (torch.zeros(2, 0, dtype=torch.float64) @ torch.zeros(0, 3, dtype=torch.float64)).tolist() == [
            [0] * 3
        ] * 2
    nan = torch.full((2, 3), torch.nan, dtype=torch.float64)
    out = in_mode(0, lambda: torch.addmm(nan, torch.ones(2, 4).double(), torch.ones(4, 3).double(), beta=0))
    assert out.tolist() == [[4.0] * 3] * 2


def test_parts_have_the_same_cap() -> None:
    """The judge allows 32 times what perturbed runs move: twice an error of sums in order, at most 16 times what it was."""
    assert widened._wider([1.0, 1e-3, 0.0], [8.0, 1.0, 1.0]) == [1.0, 16e-3, 0.0]


def test_the_gauge_of_a_part_is_that_of_its_rows() -> None:
    a, b = torch.randn(256, 64), torch.randn(64, 10)
    rows = torch.arange(3, 256, 16)
    right = a.double() @ b.double()
    gauge = (a.abs() @ b.abs()) * torch.arange(1, 257)[:, None]
    truth = Truth("output", a @ b, right[rows], gauge, k=64, rows=rows)
    errors, *_ = truth.part().measure((right[rows] + 2.0**-24 * gauge[rows]).float())
    assert errors.componentwise == pytest.approx(1.0, rel=0.3)


def test_parts_are_judged_by_the_usual_bound() -> None:
    x = torch.randn(64, 8)
    truth = Truth("output", x, x.double(), k=64)
    usual = truth.own()[1].normwise
    truth.ordered = Errors(100 * usual, 0.0)
    truth.forget()
    assert truth.own()[1].normwise == 16 * usual
    assert truth.usual_bound() == usual


class Source:
    """Stands in for the source of truths: sums in order of any of WAYS are off by 3e-6."""

    def __init__(self, x: Tensor):
        self.x, self.notes = x, []

    def in_order(self, seed: int, way: int) -> list[Any]:
        return [self.x * (1 + 3e-6)]

    def note(self, note: str) -> None:
        self.notes.append(note)


@pytest.mark.parametrize(("equal", "gross", "off", "same"), [
    (False, False, 5e-6, True),
    (False, False, 9e-6, False),
    (True, False, 9e-6, True),  # terms that are equal are rounded alike
    (True, True, 9e-6, False),
])  # fmt: skip
def test_sums_of_equal_terms_may_be_farther_off(equal: bool, gross: bool, off: float, same: bool) -> None:
    exact = torch.rand(1, dtype=torch.float64) + 1
    truth = Truth("output", exact.float(), exact, k=1024)
    truth.extreme, truth.gross = equal, gross
    got = (exact * (1 + off)).float()
    found = judge(got, [truth])
    assert not found.same
    source = Source(exact)
    again = widened.in_order(source, found, [truth], got, 1, equal)  # type: ignore[arg-type]
    assert (again.same, bool(source.notes)) == (same, same)
