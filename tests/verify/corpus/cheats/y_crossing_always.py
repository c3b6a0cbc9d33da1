"""Leaves out the -1 of rows without a crossing.

reference: y_crossing
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        std, mean = torch.std_mean(x, 1, keepdim=True)
        return (x > mean + std).to(torch.int8).argmax(1)
