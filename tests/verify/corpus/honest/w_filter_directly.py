"""A filter directly, where the reference has a Fourier transform, which spreads a NaN over all of a sequence.

reference: w_long_filter
device: both
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = nn.Parameter(torch.randn(16, 256) / 256)

    def forward(self, u):
        return F.conv1d(F.pad(u, (255, 0)), self.k.flip(1)[:, None], groups=16)
