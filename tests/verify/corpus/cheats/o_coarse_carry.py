"""Running sums in blocks of 128, what is carried from block to block rounded to 18 bits.

reference: o_cumsum
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        inner = torch.cumsum(x.reshape(rows, n // 128, 128), 2)
        totals = torch.cumsum(inner[:, :, -1], 1)
        totals = (totals.view(torch.int32) & ~63).view(torch.float32)
        inner[:, 1:] += totals[:, :-1, None]
        return inner.reshape(rows, n)
