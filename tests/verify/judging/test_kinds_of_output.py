"""Outputs of few bits, complex outputs, outputs that are rounded only to be returned, and counters in forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mm32.verify.judging import exact

Compare = Callable[..., tuple[str, str, Any]]
WEIGHTS = "self.w = nn.Parameter(torch.randn(64, 16))"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("return torch.sign(x @ self.w)", "y = torch.sign(x @ self.w); y[3, 5] *= -1; return y"),
        ("return torch.histc(x @ self.w, 16, -20, 20)", "return torch.histc(x @ self.w, 16, -20, 20).roll(1)"),
        (
            "return F.one_hot((x @ self.w).argmax(-1), 16).float()",
            "return F.one_hot((x @ self.w).argmin(-1), 16).float()",
        ),
    ],
)
def test_values_of_few_bits_have_a_verdict(verdict: Compare, right: str, wrong: str) -> None:
    """Rounding these to fewer bits is no mistake, so it cannot tell whether the check works."""
    got, reason, report = verdict(right, right, "[torch.randn(64, 64)]", init=WEIGHTS)
    assert got == "SAME", reason
    assert all(check["caught"] for check in report.self_test)
    got, reason, _ = verdict(right, wrong, "[torch.randn(64, 64)]", init=WEIGHTS)
    assert got == "DIFFERENT", reason


def test_a_small_imaginary_part_is_judged_by_itself(verdict: Compare) -> None:
    right = "return torch.complex(x @ self.w, 1e-4 * torch.tanh(x @ self.w))"
    low = "return torch.complex(x @ self.w, (1e-4 * torch.tanh(x @ self.w)).bfloat16().float())"
    got, reason, _ = verdict(right, low, "[torch.randn(64, 64)]", init=WEIGHTS)
    assert (got, "its imaginary part has normwise error" in reason) == ("DIFFERENT", True), reason
    got, reason, _ = verdict(
        right, right.replace("x @ self.w", "(self.w.T @ x.T).T"), "[torch.randn(64, 64)]", init=WEIGHTS
    )
    assert got == "SAME", reason
    transform = "return torch.fft.fft(x)"  # the imaginary part for a symmetric input is only rounding
    even = "[(lambda t: t + t.flip(-1).roll(1, -1))(torch.randn(64, 64))]"
    by_product = (
        "n = torch.arange(64); return x.to(torch.complex64) @ torch.exp(-2j * torch.pi * (n[:, None] * n % 64) / 64)"
    )
    got, reason, _ = verdict(transform, by_product, even)
    assert "imaginary" not in reason, reason


def test_a_distance_of_0_stays_0_in_a_perturbed_run(verdict: Compare) -> None:
    forces = (
        "d = torch.cdist(x, x, compute_mode='donot_use_mm_for_euclid_dist'); "
        "return torch.where(d > 0, 1 / d, torch.zeros_like(d)).sum(-1)"
    )
    got, reason, _ = verdict(forces, forces, "[torch.randn(48, 3)]")
    assert got == "SAME", reason


def test_what_is_rounded_only_to_be_returned_is_computed_in_fp32(verdict: Compare) -> None:
    """The bounds of a model that computes in bf16 would leave room for a hundred roundings."""
    steps = "h = {}\n        for _ in range(100): h = h + 1e-3 * torch.tanh(h @ self.w.to(h.dtype))\n        return h{}"
    right, inputs = steps.format("x.float()", ".to(x.dtype)"), "[torch.randn(32, 64).bfloat16()]"
    square = "self.w = nn.Parameter(torch.randn(64, 64) / 8)"
    got, reason, _ = verdict(right, steps.format("x", ""), inputs, init=square)
    assert (got, "normwise error" in reason) == ("DIFFERENT", True), reason
    other = right.replace("h @ self.w.to(h.dtype)", "(self.w.T @ h.T).T")
    got, reason, _ = verdict(right, other, inputs, init=square)
    assert got == "SAME", reason
    inside = steps.format("x", "")  # this reference computes in bf16
    got, reason, _ = verdict(inside, inside.replace("1e-3", "5e-3"), inputs, init=square)
    assert got == "DIFFERENT", reason
    got, reason, _ = verdict(inside, inside, inputs, init=square)
    assert got == "SAME", reason


@pytest.mark.parametrize(
    ("forward", "inner"),
    [
        (lambda x: torch.tanh(x.float()).bfloat16(), {torch.float32}),
        (lambda x: torch.tanh(x.float()).bfloat16().view(-1).clone(), {torch.float32}),
        (lambda x: torch.tanh(x.float()).bfloat16().float(), {torch.float32, torch.bfloat16}),
        (lambda x: torch.tanh(x), {torch.bfloat16}),
    ],
)
def test_a_type_counts_once_an_operator_takes_what_was_cast_to_it(
    forward: Callable[[Tensor], Tensor], inner: set[torch.dtype]
) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return forward(x)

    recorder, _ = exact.record(Model(), [torch.ones(4, 4, dtype=torch.bfloat16)])
    assert recorder.inner == inner


def test_a_counter_that_forward_changes_is_named(verdict: Compare) -> None:
    count = "self.n += 1; return x * torch.clamp(1 - self.n * 1e-3, min=0.5)"
    got, reason, report = verdict(
        count, count.replace("min=0.5", "min=0.1"), "[torch.randn(32, 32)]",
        init="self.register_buffer('n', torch.zeros((), dtype=torch.long))",
    )  # fmt: skip
    assert got == "SAME", reason
    assert "buffer 'n', which forward changes, from another state on" in report.left_out


VECTORS = "u, s, v = torch.linalg.svd(x, full_matrices=False); return {} * s"
VALUES = "return torch.linalg.svdvals(x) {}"


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (VECTORS.format("u"), VECTORS.format("-u"), True),
        ("return torch.linalg.eigh(x.T @ x)[1]", "return x", True),
        (VALUES.format(""), VALUES.format("* 1.01"), False),
        ("return x * 2", "return x * 3", False),
    ],
)
def test_a_reason_says_that_the_signs_of_vectors_are_not_determined(
    verdict: Compare, right: str, wrong: str, said: bool
) -> None:
    _, reason, _ = verdict(right, wrong, "[torch.randn(40, 6)]")
    assert ("the signs of its vectors are the library's choice" in reason) == said, reason
