"""Leaves the convolution's bias out of the last channel.

reference: j_conv
device: both
verdict: not SAME
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3)

    def forward(self, x):
        bias = self.conv.bias.clone()
        bias[-1] = 0
        return F.conv2d(x, self.conv.weight, bias)
