import torch
from torch import nn


class Model(nn.Module):
    """Which bucket: x (N, D), edges (15,) buffer -> int64."""

    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.linspace(-2, 2, 17))

    def forward(self, x):
        return torch.bucketize(x, self.edges, right=False)


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return []
