import torch
import torch.nn as nn


class Model(nn.Module):
    """A batched matrix product."""

    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return torch.bmm(a, b)


batch_size = 64
m, k, n = 256, 512, 256


def get_inputs():
    return [torch.rand(batch_size, m, k), torch.rand(batch_size, k, n)]


def get_init_inputs():
    return []
