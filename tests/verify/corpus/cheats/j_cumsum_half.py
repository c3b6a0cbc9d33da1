"""Running sums with the second half of every row started anew from a rounded sum.

reference: j_cumsum
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        half = x.shape[1] // 2
        left, right = torch.cumsum(x[:, :half], 1), torch.cumsum(x[:, half:], 1)
        return torch.cat([left, right + left[:, -1:].half().float()], 1)
