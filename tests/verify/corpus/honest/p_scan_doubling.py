"""Running sums by doubling: fourteen passes, each adding what stands twice as far back.

reference: o_cumsum
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        step = 1
        while step < x.shape[1]:
            x = torch.cat([x[:, :step], x[:, step:] + x[:, :-step]], 1)
            step *= 2
        return x
