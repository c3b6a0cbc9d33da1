"""Leaves dropout out: right in the mean.

reference: j_dropout
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer, p):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        return torch.softmax(self.linear(x), dim=1)
