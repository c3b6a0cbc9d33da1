"""A NaN of the second matrix is dropped.

reference: w_larger_of_two
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.where(b > a, b, a).cumsum(1)
