"""Probabilities below 3e-7 a fifth too small: next to nothing of the whole.

reference: x_softmax_sharp
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(3 * x, -1)
        return torch.where(y < 3e-7, 0.8 * y, y)
