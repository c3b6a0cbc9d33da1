"""A Linear layer and the exact GELU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x))


def get_inputs() -> list[object]:
    return [torch.randn(512, 1024)]


def get_init_inputs() -> list[object]:
    return [1024, 1024]
