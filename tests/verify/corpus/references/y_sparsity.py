import torch
from torch import nn


class Model(nn.Module):
    """Of each row of activations: how many are not zero, how many above 1 (int64), and the mean."""

    def forward(self, x):
        return torch.stack([(x != 0).sum(1), (x > 1).sum(1)], 1), x.mean(1)


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []
