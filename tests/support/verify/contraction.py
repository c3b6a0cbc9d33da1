"""Which contraction the tool finds in a model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mm32.verify.judging import contractions


class Wrap(nn.Module):
    def __init__(self, call: Callable[..., object]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *inputs: Tensor) -> object:
        return self.call(*inputs)


def contraction(model: nn.Module, *inputs: Tensor) -> tuple[contractions.Contraction, list[Tensor]]:
    values, names = contractions.flat_inputs(model, inputs)
    tracer = contractions.Tracer(values)
    with torch.no_grad(), tracer:
        output = model(*inputs)
    return contractions.find_contraction(tracer.graph(output), names), values
