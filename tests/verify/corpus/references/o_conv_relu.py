"""A convolution of 3 x 3, and ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs() -> list[object]:
    return [torch.randn(4, 32, 56, 56)]


def get_init_inputs() -> list[object]:
    return [32, 64]
