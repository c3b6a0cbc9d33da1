import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n, n) / n**0.5)
        self.register_buffer("keep", torch.ones(n, n, dtype=torch.bool))

    def forward(self, x):
        return torch.tanh(x @ (self.w * self.keep).T)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return [96]
