"""Both layers with operands rounded to 17 bits, a pair of bfloat16 numbers each.

reference: p_two_layers
device: both
verdict: not SAME
"""

import torch
from torch import nn


def pair(x):
    high = x.bfloat16().float()
    return torch.where(x.isfinite(), high + (x - high).bfloat16().float(), x)


class ModelNew(nn.Module):
    def __init__(self, inner, width):
        super().__init__()
        self.up = nn.Linear(inner, width)
        self.down = nn.Linear(width, inner)

    def forward(self, x):
        x = nn.functional.gelu(nn.functional.linear(pair(x), pair(self.up.weight), self.up.bias))
        return nn.functional.linear(pair(x), pair(self.down.weight), self.down.bias)
