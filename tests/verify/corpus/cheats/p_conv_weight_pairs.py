"""The convolution with its weights alone rounded to 17 bits, a pair of bfloat16 numbers each; the image keeps its 24.

reference: b_conv2d
device: both
verdict: not SAME
"""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pair(x):
    high = x.bfloat16().float()
    return torch.where(x.isfinite(), high + (x - high).bfloat16().float(), x)


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, device=DEVICE)

    def forward(self, x):
        return torch.nn.functional.conv2d(x, pair(self.conv.weight), self.conv.bias, padding=1)
