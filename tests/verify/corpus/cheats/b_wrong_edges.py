"""A convolution that computes no left and right edge: it convolves without padding there and repeats the neighbouring
column of the result. One pixel in sixteen is wrong; a judge that forgives a share of mismatches, or averages, does not
mind.

reference: b_conv2d
device: both
verdict: not SAME
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
        inner = F.conv2d(x, self.conv.weight, self.conv.bias, padding=(1, 0))
        return torch.cat((inner[..., :1], inner, inner[..., -1:]), dim=-1)
