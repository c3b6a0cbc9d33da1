"""A Linear layer, dropout in training mode, ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.dropout = nn.Dropout(0.3)
        self.train()

    def forward(self, x):
        return torch.relu(self.dropout(self.linear(x)))


def get_inputs() -> list[object]:
    return [torch.randn(1024, 256)]


def get_init_inputs() -> list[object]:
    return [256, 2048]
