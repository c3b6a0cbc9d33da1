"""Sums of rows first.

reference: u_squares
device: both
verdict: SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return (x - y).square().sum(1).sum() / x.numel()
