"""Pads the border with zeros instead of minus infinity: a border window of 25 entries or more is hardly ever all
negative.

reference: o_max_pool
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        half = self.size // 2
        padded = torch.nn.functional.pad(x, (half,) * 4)
        rows = torch.nn.functional.max_pool2d(padded, (1, self.size), stride=(1, 2))
        return torch.nn.functional.max_pool2d(rows, (self.size, 1), stride=(2, 1))
