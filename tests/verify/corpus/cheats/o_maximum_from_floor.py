"""Starts its maximum at -10000 and its minimum at 10000, as kernels do that have no minus infinity at hand: wrong for
rows beyond.

reference: o_row_max
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        low, high = torch.aminmax(x, dim=1)
        high = torch.where(high < -10000.0, torch.full_like(high, -10000.0), high)
        low = torch.where(low > 10000.0, torch.full_like(low, 10000.0), low)
        return high, low, high - low
