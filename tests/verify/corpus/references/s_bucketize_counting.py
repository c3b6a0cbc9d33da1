import torch
import torch.nn as nn


class Model(nn.Module):
    """bins of values; edges are in order"""

    def forward(self, x, edges):
        return torch.bucketize(x, edges)


def get_inputs():
    return [torch.randn(64, 256), torch.linspace(-2, 2, 33)]


def get_init_inputs():
    return []
