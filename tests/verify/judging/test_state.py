"""Whether a candidate leaves a model's buffers as the reference does (judging/state.py)."""

from __future__ import annotations

import math

import pytest
import torch

from mm32.verify.judging.bounds import U32
from mm32.verify.judging.state import difference


def said(before: torch.Tensor, left: torch.Tensor, theirs: torch.Tensor, noise: dict[str, float]) -> str:
    return difference(["b"], {"b": before}, {"b": left}, {"b": theirs}, {"b"}, noise, U32)


@pytest.mark.parametrize("noise", [{}, {"b": 1e-6}])
def test_entries_that_stay_as_they_were_are_found_beside_large_ones(noise: dict[str, float], seed: int) -> None:
    before, left = torch.zeros(256), torch.rand(256) + 0.5
    before[:8], left[:8] = 1e9, 1.1e9
    theirs = torch.where(torch.arange(256) < 8, left, before)
    assert "248 of the 256 entries that the call changes are left as they were" in said(before, left, theirs, noise)
    rounded = left * (1 + 2.0**-23)
    assert said(before, left, rounded, noise) == ""


def test_what_rounding_alone_changes_may_stay(seed: int) -> None:
    before, left = torch.zeros(64), 1e-9 * torch.randn(64)
    assert said(before, left, before.clone(), {"b": 1e-8}) == ""


def test_infinite_entries_are_compared_by_themselves(seed: int) -> None:
    before = torch.full((8,), -math.inf)
    left = torch.randn(8)
    left[5:] = -math.inf
    assert said(before, left, left.clone(), {}) == ""
    wrong = left.clone()
    wrong[6] = 0.0
    assert "its entry 6 is 0, the reference's is -inf" in said(before, left, wrong, {})
    assert "off by" in said(before, left, torch.where(left.isfinite(), left + 1, left), {})
    assert "left as they were" not in said(before, left, left * (1 + 2.0**-23), {})
