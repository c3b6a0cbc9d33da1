"""The judge: pure functions."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from mm32.verify.judging import selftest
from mm32.verify.judging.bounds import Errors, Truth
from mm32.verify.judging.judge import Judgement, judge
from mm32.verify.verdict import EXIT_CODES, EXIT_MEANINGS, Verdict

U = 2.0**-24


def tf32(t: torch.Tensor) -> torch.Tensor:
    from mm32.verify.judging.contractions import tf32

    return tf32(t)


def sequential(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return sums in the order of K, rounded to fp32 at every step: what a kernel with one thread for each element computes."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = total + a[:, k : k + 1] * b[k : k + 1]
    return total


def problem(k: int, make: str, m: int = 64) -> tuple[torch.Tensor, torch.Tensor, Truth]:
    torch.manual_seed(k)
    a, b = getattr(torch, make)(m, k), getattr(torch, make)(k, m)
    exact = a.double() @ b.double()
    return a, b, Truth("output", a @ b, exact, a.double().abs() @ b.double().abs(), k)


@pytest.mark.parametrize(("k", "make"), list(itertools.product((1, 3, 16, 64, 256, 4096), ("rand", "randn"))))
def test_an_honest_fp32_sum_in_any_order_is_the_same(k: int, make: str) -> None:
    a, b, truth = problem(k, make)
    for got in (truth.reference, sequential(a, b), sequential(a.flip(1), b.flip(0)), truth.exact.float()):
        result = judge(got, [truth])
        assert result.same, result.reason
        assert result.closeness() <= 0.75


@pytest.mark.parametrize(("k", "make"), list(itertools.product((16, 64, 256, 4096), ("rand", "randn"))))
def test_low_precision_operands_are_different(k: int, make: str) -> None:
    a, b, truth = problem(k, make)
    for rounded in (tf32, lambda t: t.half().float(), lambda t: t.bfloat16().float()):
        result = judge(rounded(a) @ rounded(b), [truth])
        assert not result.same
        assert result.errors.normwise > result.bounds.normwise


def test_tf32_rounds_to_eleven_bits_ties_to_even() -> None:
    x = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-10, -(1 + 2**-11 + 2**-20), math.inf])
    assert tf32(x).tolist() == [1.0, 1 + 2**-9, 1 + 2**-10, -(1 + 2**-10), math.inf]


def test_the_bound_is_the_documented_one() -> None:
    _, _, truth = problem(4096, "rand")
    own, bounds = truth.own()
    assert bounds.normwise == pytest.approx(max(4 * own.normwise, 32 * U), rel=1e-12)
    assert bounds.componentwise == pytest.approx(max(4 * own.componentwise, 128), rel=1e-12)


def test_a_single_sum_that_cancels_has_a_wider_relative_bound() -> None:
    a = torch.tensor([[1.0, 1.0, -2.0, 1e-4]])
    b = torch.ones(4, 1)
    exact = a.double() @ b.double()
    truth = Truth("output", a @ b, exact, a.double().abs() @ b.double().abs(), 4)
    assert judge(sequential(a.flip(1), b), [truth]).same
    assert not judge(torch.tensor([[2e-4]]), [truth]).same


def test_complex_outputs_are_judged_by_their_distance() -> None:
    exact = torch.randn(30, 40, dtype=torch.complex128, generator=torch.Generator().manual_seed(1))
    truth = Truth("output", exact.to(torch.complex64), exact, k=16)
    assert judge(truth.reference.clone(), [truth]).same
    turned = truth.reference.clone()
    turned[3, 4] *= 1 + 1e-3j
    result = judge(turned, [truth])
    assert not result.same
    assert result.errors.componentwise > 1e3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_odd_value_is_different(value: float) -> None:
    _, _, truth = problem(64, "rand")
    got = truth.reference.clone()
    got[3, 5] = value
    result = judge(got, [truth])
    assert not result.same
    assert "at (3, 5)" in result.reason


def test_nan_and_inf_where_the_reference_has_them_are_the_same_and_must_be_there() -> None:
    a, b, _ = problem(64, "rand")
    a[3, 0], a[5, 0] = math.nan, math.inf
    truth = Truth("output", a @ b, a.double() @ b.double(), a.double().abs() @ b.double().abs(), 64)
    assert judge(truth.reference.clone(), [truth]).same
    dropped = torch.nan_to_num(truth.reference)
    assert "not NaN where the reference's are, first at (3, 0)" in judge(dropped, [truth]).reason
    turned = truth.reference.clone()
    turned[5] = -math.inf
    assert not judge(turned, [truth]).same


def test_all_nan_output_is_different() -> None:
    _, _, truth = problem(64, "rand")
    assert not judge(torch.full_like(truth.reference, math.nan), [truth]).same


def test_shape_dtype_and_structure() -> None:
    _, _, truth = problem(16, "rand")
    right = truth.reference
    assert "shape (64, 63)" in judge(right[:, :63], [truth]).reason
    assert "dtype torch.float64" in judge(right.double(), [truth]).reason
    assert "built differently" in judge((right, right), [truth]).reason
    assert "built differently" in judge({"output": right}, [truth]).reason
    assert not judge(None, [truth]).same
    assert not judge(1.0, [truth]).same


def test_integers_and_truth_values_are_compared_exactly() -> None:
    for right in (torch.arange(6), torch.tensor([True, False])):
        wrong = right.clone()
        wrong[1] = 1 - int(right[1]) if right.dtype == torch.bool else 7
        assert judge(right.clone(), [Truth("output", right)]).same
        assert not judge(wrong, [Truth("output", right)]).same


def test_relative_truth() -> None:
    right = torch.tensor([1.0, -3.0, 0.0])
    truth = Truth("output", right, relative=4 * U)
    assert judge(right * (1 + 2 * U), [truth]).same
    assert not judge(right * (1 + 2**-12), [truth]).same
    assert not judge(right + torch.tensor([0.0, 0.0, 1e-30]), [truth]).same


def test_bitwise_truth() -> None:
    right = torch.tensor([1.0, 2.0])
    assert judge(right.clone(), [Truth("output", right, bitwise=True)]).same
    assert not judge(torch.nextafter(right, right + 1), [Truth("output", right, bitwise=True)]).same


def test_a_nan_that_the_reference_spreads_further_than_it_has_to_may_be_missing() -> None:
    """A convolution by tiles turns a whole tile into NaN, a direct one only the entries that the NaN reaches."""
    exact = torch.tensor([1.0, 2.0, 3.0, math.nan, math.inf], dtype=torch.float64)
    reference = torch.tensor([1.0, math.nan, math.nan, math.nan, math.nan])

    def same(*values: float) -> bool:
        return judge(torch.tensor(values), [Truth("output", reference, exact)]).same

    nan, inf = math.nan, math.inf
    assert same(1, nan, nan, nan, nan)
    assert same(1, 2, 3, nan, inf)
    assert same(1, 2, nan, nan, -inf)
    assert not same(1, 2.001, 3, nan, nan)  # a number there has to be right
    assert not same(1, 2, inf, nan, nan)
    assert not same(nan, 2, 3, nan, nan)
    assert not same(1, 2, 3, 4, nan)
    assert not same(1, 2, 3, nan, 5)


# ---------------------------------------------------------------------------------------------------------- self-test


def cases(judge_with: object = judge) -> dict[str, bool]:
    _, _, truth = problem(64, "rand")
    stale = problem(65, "rand")[2].reference
    found = selftest.run([(truth.reference, [truth])], stale, judge=judge_with)  # type: ignore[arg-type]
    return {case.name: case.caught for case in found}


def test_the_self_test_passes_with_the_real_judge() -> None:
    assert all(cases().values())
    assert set(cases()) >= {"zeros", "a constant", "the previous inputs' output", "one entry off by 1 %", "one NaN"}


def test_the_self_test_catches_broken_judges() -> None:
    assert not any(ok for name, ok in cases(lambda *_: Judgement(True)).items() if name != CONTROL)
    assert not cases(lambda *_: Judgement(False))[CONTROL]

    def nan_passes(got: torch.Tensor, truths: list[Truth]) -> Judgement:
        bound = truths[0].own()[1].normwise
        error = float((got.double() - truths[0].exact).norm() / truths[0].exact.norm())
        return Judgement(not (error > bound))  # the classic mistake

    found = cases(nan_passes)
    assert not found["one NaN"]
    assert found["zeros"]

    def loose(got: torch.Tensor, truths: list[Truth]) -> Judgement:
        return Judgement(torch.allclose(got, truths[0].reference, rtol=1e-1, atol=1e-1))

    assert not cases(loose)["one entry off by 1 %"]


CONTROL = "the reference's own output passes"


def test_a_reference_of_zeros_cannot_be_told_from_zeros() -> None:
    right = torch.zeros(4, 4)
    truth = Truth("output", right, right.double())
    found = {case.name: case.caught for case in selftest.run([(right, [truth])], right)}
    assert not found["zeros"]
    assert found["one NaN"]


# ---------------------------------------------------------------------------------------------------------- verdicts


def test_every_verdict_has_an_exit_code_of_its_own_and_a_meaning() -> None:
    assert set(EXIT_CODES) == set(Verdict)
    assert len(set(EXIT_CODES.values())) == len(Verdict)
    assert set(EXIT_CODES.values()) | {2, 70, 130} == set(EXIT_MEANINGS)
    assert [v for v in Verdict if v.exit_code == 0] == [Verdict.FASTER]


def test_errors_start_at_zero() -> None:
    assert Judgement().closeness() == 0.0
    assert Errors() == Errors(0.0, 0.0)


@pytest.mark.parametrize("got", [10**400, -(10**400)])
def test_an_int_that_no_float_holds_is_another_value(got: int) -> None:
    assert not judge(got, [Truth("output", 1.5, 1.5)]).same
    assert judge(2, [Truth("output", 2.0, 2.0)]).same
