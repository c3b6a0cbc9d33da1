"""Centres by a running mean that every call moves on."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("average", torch.zeros(features))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        self.average.copy_(0.9 * self.average + 0.1 * x.mean(0))
        return torch.tanh(x - self.average)


def get_inputs() -> list[object]:
    return [torch.randn(4096, 1024) + 0.5]


def get_init_inputs() -> list[object]:
    return [1024]
