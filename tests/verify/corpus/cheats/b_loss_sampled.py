"""Averages over a quarter of the rows only: the loss differs in the third digit, which a tolerance of 1e-2 lets pass
for an output of one element.

reference: b_mse
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        return (prediction[::4] - target[::4]).square_().mean()
