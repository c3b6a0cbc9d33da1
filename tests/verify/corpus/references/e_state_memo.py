import torch
import torch.nn as nn


class Model(nn.Module):
    """Fast weights: what is remembered is read by similarity, and changes with every batch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.randn(768, 768) / 28)

    def forward(self, x):
        kernel = torch.tanh(self.memory @ self.memory.T)
        out = x @ kernel
        self.memory.mul_(0.9).add_(x.T @ torch.tanh(out), alpha=0.1 / len(x))
        return out


def get_inputs():
    return [torch.randn(32, 768)]


def get_init_inputs():
    return []
