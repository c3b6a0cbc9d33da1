"""The CPU implementation: torch's own matmul, then the epilogue, so that a program runs the same on any machine."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def activate(x: torch.Tensor, activation: str | None) -> torch.Tensor:
    """torch's function of that name; differentiable."""
    return x if activation is None else _ACTIVATIONS[activation](x)


def matmul(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> torch.Tensor:
    """act(a @ b + bias) by torch, for checked inputs, in their dtype: under autocast too."""
    with torch.autocast("cpu", enabled=False):
        result = torch.matmul(a, b)
        if bias is not None:
            result = result + (bias if b.dim() > 1 else bias[0])
        return activate(result, activation)
