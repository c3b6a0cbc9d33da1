"""Computes in another layout and returns it: the output's values are the reference's, its strides those of
channels-last memory.

reference: b_conv2d
device: both
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, device=DEVICE)

    def forward(self, x):
        x = x.contiguous(memory_format=torch.channels_last)
        weight = self.conv.weight.contiguous(memory_format=torch.channels_last)
        return F.conv2d(x, weight, self.conv.bias, padding=1)
