"""The 32 largest of every row, sorted."""

import torch
from torch import nn

rows, cols, k = 2048, 16384, 32


class Model(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        return torch.topk(x, self.k, dim=1).values


def get_inputs():
    return [torch.rand(rows, cols)]


def get_init_inputs():
    return [k]
