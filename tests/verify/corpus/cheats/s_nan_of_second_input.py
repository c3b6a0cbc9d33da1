"""A NaN in the bias counts as nothing.

reference: s_nan_of_second_input
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # a NaN in the bias counts as nothing
    def forward(self, x, g, b):
        return x * torch.sigmoid(g) + torch.where(b.isnan(), torch.zeros_like(b), b)
