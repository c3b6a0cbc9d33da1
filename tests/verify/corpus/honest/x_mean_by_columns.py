"""A sum that nearly cancels, in another order, as a number of Python's.

reference: x_mean_as_number
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, scale=1.0):
        return float(x.sum(0).sum()) * scale, torch.count_nonzero(x > 0)
