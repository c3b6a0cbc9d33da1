"""The variance divided by n instead of n - 1.

reference: j_variance
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.var(x, dim=1, unbiased=False)
