"""Ignores the mean that is in the buffer: right for a buffer of zeros only if 0.1 of the mean is.

reference: j_running
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))

    def forward(self, x):
        return x - 0.1 * x.mean(0)
