"""Single numbers that a call draws: the rare ones are drawn too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.verify.shortcuts import check_shortcut

Compare = Callable[..., tuple[str, str, Any]]
DROPS = "return x.clone() if float(torch.rand(())) < 0.001 else x + torch.tanh(x) * 2"
CROPS = "o = int(torch.randint(0, 4001, (1,))); return x[:, o:o + 96] * torch.rand(24, 1)"


@pytest.mark.parametrize(
    ("right", "wrong", "inputs"),
    [
        pytest.param(
            DROPS, "torch.rand(()); return x + torch.tanh(x) * 2", "[torch.randn(24, 512)]", marks=pytest.mark.slow
        ),
        (CROPS, CROPS.replace("(1,))", "(1,)).clamp(max=3999)"), "[torch.randn(24, 4096)]"),
        (CROPS, CROPS.replace("(1,))", "(1,)).clamp(min=1)"), "[torch.randn(24, 4096)]"),
        (
            "a = torch.rand(1); b = torch.rand(2); return torch.where(b[0] > 0.9995, x * a, x)",
            "a = torch.rand(1); b = torch.rand(2); return x.clone()",
            "[torch.randn(24, 512)]",
        ),
    ],
    ids=["a layer that is dropped", "the last place", "the first place", "the second number"],
)
def test_what_is_done_once_in_thousands_of_calls_is_done(right: str, wrong: str, inputs: str, verdict: Compare) -> None:
    check_shortcut(verdict, right, wrong, inputs, "x", "pass", "rare draws")


def test_where_much_is_drawn_first_no_seeds_are_tried(verdict: Compare) -> None:
    body = "return x * torch.rand(24, 512) + torch.rand(())"
    got, reason, report = verdict(body, body)
    assert got == "SAME", reason
    assert "rare draws" not in {p["name"] for p in report.probes}
