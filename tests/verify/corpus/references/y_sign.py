import torch
from torch import nn


class Model(nn.Module):
    """Ternary codes: the sign of x (N, D) as int8, and the mean size of a row."""

    def forward(self, x):
        return torch.sign(x).to(torch.int8), x.abs().mean(1)


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []
