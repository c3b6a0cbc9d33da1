"""Running sums in two levels: within blocks of 128, then the blocks' totals added to them, all in fp32. Another order
of additions than the reference's.

reference: o_cumsum
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        blocks = x.reshape(rows, n // 128, 128)
        inner = torch.cumsum(blocks, 2)
        totals = torch.cumsum(inner[:, :, -1], 1)
        inner[:, 1:] += totals[:, :-1, None]
        return inner.reshape(rows, n)
