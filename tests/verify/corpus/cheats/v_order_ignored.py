"""Ignores an order of channels, a buffer of integers that are in order at first.

reference: v_order_ignored
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("order", torch.arange(n))
        self.linear = nn.Linear(n, n)

    def forward(self, x):
        return torch.relu(self.linear(x))
