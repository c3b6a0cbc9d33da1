"""Fast weights, read by similarity, that grow in with their age: a buffer of floats and a counter change with every batch."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.randn(768, 768) / 28)
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        kernel = torch.tanh(self.memory @ self.memory.T)
        out = (x @ kernel) * (1 - 0.5 ** (self.age + 1).float())
        self.memory.mul_(0.9).add_(x.T @ torch.tanh(out), alpha=0.1 / len(x))
        self.age.add_(1)
        return out


def get_inputs() -> list[object]:
    return [torch.randn(32, 768)]


def get_init_inputs() -> list[object]:
    return []
