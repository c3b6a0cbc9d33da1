import torch
from torch import nn


class Model(nn.Module):
    """The 8 largest of each row, with their places."""

    def forward(self, x):
        values, places = torch.topk(x, 8, dim=1)
        return values, places


def get_inputs():
    return [torch.randn(32, 8192)]


def get_init_inputs():
    return []
