"""A linear layer with parameters, and relu."""

import torch
from torch import nn

ROWS, INNER, OUTER = (2048, 1024, 1024) if torch.cuda.is_available() else (160, 256, 192)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner))
        self.bias = nn.Parameter(torch.randn(outer))

    def forward(self, x):
        return torch.relu(torch.nn.functional.linear(x, self.weight, self.bias))


def get_inputs():
    return [torch.randn(ROWS, INNER, device=DEVICE)]


def get_init_inputs():
    return [INNER, OUTER]
