"""Running sums in order, one rounding at a step.

reference: j_cumsum
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.is_cuda:
            return torch.cumsum(x, 1)
        out, total = torch.empty_like(x), torch.zeros_like(x[:, 0])
        for i, column in enumerate(x.unbind(1)):
            total = total + column
            out[:, i] = total
        return out
