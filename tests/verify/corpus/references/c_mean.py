"""Mean over the middle axis."""

import torch
from torch import nn

a, b, c = 64, 4099, 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.mean(x, dim=1)


def get_inputs():
    return [torch.rand(a, b, c)]


def get_init_inputs():
    return []
