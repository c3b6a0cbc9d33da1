"""A linear layer with its parameters, and gelu behind it."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS = 2048 if DEVICE == "cuda" else 128


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, 256, device=DEVICE)]


def get_init_inputs():
    return [256, 192]
