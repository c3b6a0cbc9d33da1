"""What the tool finds a model to be."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mm32.verify.judging import oracle


class Wrap(nn.Module):
    def __init__(self, call: Callable[..., object]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *inputs: Tensor) -> object:
        return self.call(*inputs)


def contraction(model: nn.Module, *inputs: Tensor) -> tuple[oracle.Contraction, list[Tensor]]:
    values, names = oracle.flat_inputs(model, inputs)
    tracer = oracle.Tracer(values)
    with torch.no_grad(), tracer:
        output = model(*inputs)
    return oracle.find_contraction(tracer.graph(output), names), values
