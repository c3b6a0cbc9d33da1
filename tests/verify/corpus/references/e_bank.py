import torch
import torch.nn as nn


class Model(nn.Module):
    """A memory bank: scores of a query, and the bank moves towards the batch (exponential average)."""

    def __init__(self):
        super().__init__()
        self.register_buffer("bank", torch.randn(4096, 512))
        self.register_buffer("mean", torch.zeros(512))

    def forward(self, x):
        out = x @ self.bank[:256].T
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.bank.mul_(0.99).add_(torch.tanh(self.bank + self.mean), alpha=0.01)
        return out


def get_inputs():
    return [torch.randn(32, 512)]


def get_init_inputs():
    return []
