"""What inputs have in common in every call, and no probe changes, is named in the verdict's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.verify.shortcuts import check_shortcut

Compare = Callable[..., tuple[str, str, Any]]
MASK = "torch.zeros(24, 24).masked_fill(torch.rand(24, 24) < 0.3, -torch.inf).fill_diagonal_(0)"


@pytest.mark.parametrize(
    ("arguments", "inputs", "said"),
    [
        ("x, m", "[torch.randn(24, 64), None]", ["input 1 other than None"]),
        ("x, m", "[torch.randn(24, 64), (None, None)]", ["input 1 other than None", "input 2 other than None"]),
        ("x, m", "[torch.randn(24, 64), 'mean']", ["input 1 other than 'mean'"]),
        ("x, m", "[torch.randn(24, 64), []]", ["lists among the inputs that are not empty"]),
        ("x, m=None, *, k=2", "[torch.randn(24, 64)]", ["arguments of forward that get_inputs() does not give: m, k"]),
        ("x, m=None, k=2", "{'x': torch.randn(24, 64), 'k': 3}", ["arguments of forward that get_inputs() does not give: m"]),
        ("x, m", f"[torch.randn(24, 64), {MASK}]", ["input 1 other than -inf and 0"]),
        ("x, m", "[torch.randn(24, 64), torch.poisson(torch.rand(64, 160) * 5)]", ["from 0 to"]),
        ("x, m", "[torch.randn(24, 64), torch.where(torch.arange(40) < 30, 0.0, -1e9)]", ["input 1 other than -1e+09 and 0"]),
    ],
)  # fmt: skip
def test_it_is_named(arguments: str, inputs: str, said: list[str], verdict: Compare) -> None:
    body = "return torch.tanh(x)"
    got, reason, report = verdict(body, body, inputs, arguments=arguments)
    assert got == "SAME", reason
    for one in said:
        assert any(one in left for left in report.left_out), report.left_out


def test_nothing_is_named_where_nothing_is_fixed(verdict: Compare) -> None:
    got, _, report = verdict("return x + m", "return m + x", "[torch.randn(24, 64), torch.randn(64)]", arguments="x, m")
    assert (got, report.left_out) == ("SAME", [])


def test_a_nan_is_put_into_each_input_by_itself(verdict: Compare) -> None:
    """The fifth of six inputs has no guard; then one of two vectors beside a matrix has none."""
    guarded = "return torch.stack([torch.nan_to_num(t) for t in (a, b, c, d, e, f)]).sum(0)"
    five = "return torch.stack([t if i == 4 else torch.nan_to_num(t) for i, t in enumerate((a, b, c, d, e, f))]).sum(0)"
    inputs = "[torch.randn(24, 32) for _ in range(6)]"
    for _ in range(3):
        check_shortcut(verdict, guarded, five, inputs, "a, b, c, d, e, f", "pass", "a NaN in a later input")
    whole = (
        "return torch.where(a.isfinite().all() & b.isfinite().all() & c.isfinite().all(), a + b.sum() + c.sum(), -a)"
    )
    part = "return torch.where(a.isfinite().all() & b.isfinite().all(), a + b.sum() + c.nan_to_num().sum(), -a)"
    vectors = "[torch.randn(24, 32), torch.randn(32), torch.randn(16)]"
    check_shortcut(verdict, whole, part, vectors, "a, b, c", "pass", "a NaN in a later input")


def test_integers_that_are_made_of_fractions_are_put_on_the_ends_of_their_range(verdict: Compare) -> None:
    right, wrong = "return torch.where((n > 59998)[:, None], -x, x)", "return x + 0 * n[:, None]"
    inputs = "[torch.randn(24, 50), (torch.rand(24) * 60000).long()]"
    check_shortcut(verdict, right, wrong, inputs, "x, n", "pass", "largest integers")
