"""Sums in the order of their terms, which is further off than the reference, by as much as pairs of bfloat16 are in short sums.

reference: x_layers
device: both
verdict: SAME
"""

import torch.nn.functional as F
from torch import nn


def in_order(x, weight, bias):
    total = bias
    for k in range(x.shape[1]):
        total = total + x[:, k, None] * weight[:, k]
    return total


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(512, 512)
        self.down = nn.Linear(512, 128)

    def forward(self, x):
        return in_order(F.gelu(in_order(x, self.up.weight, self.up.bias)), self.down.weight, self.down.bias)
