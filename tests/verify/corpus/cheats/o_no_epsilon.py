"""Divides by the length without a floor: a row of zeros becomes NaN.

reference: o_normalize
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * (x * x).sum(1, keepdim=True).rsqrt_()
