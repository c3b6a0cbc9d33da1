"""Maxima of windows of 9 x 9 with a border of 4."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.pool = nn.MaxPool2d(size, stride=2, padding=size // 2)

    def forward(self, x):
        return self.pool(x)


def get_inputs() -> list[object]:
    return [torch.randn(4, 32, 96, 96)]


def get_init_inputs() -> list[object]:
    return [9]
