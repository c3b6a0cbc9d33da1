"""Distinct values, whose number is the same for most data and another one for some.

reference: w_unique
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sort(x).values.unique_consecutive(), x + x
