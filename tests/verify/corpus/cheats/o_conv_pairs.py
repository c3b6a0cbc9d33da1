"""The convolution with image and weights rounded to 17 bits (a pair of bfloat16 numbers each).

reference: o_conv_relu
device: both
verdict: not SAME
"""

import torch
from torch import nn


def rounded(x):
    high = x.bfloat16().float()
    low = (x - high).bfloat16().float()
    return torch.where(x.isfinite(), high + low, x)


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1)

    def forward(self, x):
        y = torch.nn.functional.conv2d(rounded(x), rounded(self.conv.weight), self.conv.bias, padding=1)
        return torch.relu(y)
