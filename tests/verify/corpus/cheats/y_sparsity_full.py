"""Counts what is not zero as if nothing were.

reference: y_sparsity
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        above = (x > 1).sum(1)
        return torch.stack([torch.full_like(above, x.shape[1]), above], 1), x.mean(1)
