"""What the tests of mm32.nn share: a model with layers of every kind, and a record of the layers' calls of mm32.linear."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

import mm32
from mm32 import functions
from mm32.activations import ACTIVATIONS

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MODULES: dict[str, Callable[[], nn.Module]] = {
    activation.name: partial(activation.module, **activation.options) for activation in ACTIVATIONS
}


def linear_calls(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """Return a list that receives the activation of each call that the layers make of mm32.linear."""
    seen: list[dict] = []
    real = functions.linear

    def linear(x: torch.Tensor, weight: object, bias: object = None, **options: object) -> torch.Tensor:
        seen.append({"activation": options.get("activation")})
        return real(x, weight, bias, **options)

    monkeypatch.setattr(functions, "linear", linear)
    return seen


def close(one: torch.Tensor, two: torch.Tensor) -> None:
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


class Block(nn.Module):
    """A model with a layer of every kind: in sequences and alone, shared, with and without bias, one inside another."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(300, 40), nn.GELU(), nn.Linear(40, 40, bias=False), nn.Dropout(0.0), nn.Linear(40, 300)
        )
        self.inner = nn.ModuleDict({"gate": nn.Linear(300, 300), "more": nn.Sequential(nn.Linear(300, 300), nn.SiLU())})
        self.head = nn.Linear(300, 7)
        self.tied = nn.Linear(300, 7)
        self.tied.weight = self.head.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.net(x)
        x = self.inner["gate"](x).sigmoid() * self.inner["more"](x)
        return self.head(x) + self.tied(x)


def frozen_layer(*sizes: int, **options: object) -> mm32.nn.Linear:
    return mm32.freeze(mm32.nn.Linear(*sizes, **options).eval())
