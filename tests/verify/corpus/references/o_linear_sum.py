"""A Linear layer and the sum of its outputs."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        return self.linear(x).sum(1, keepdim=True)


def get_inputs() -> list[object]:
    return [torch.randn(1024, 512)]


def get_init_inputs() -> list[object]:
    return [512, 1024]
