"""Computes in fp64 and rounds once: not the reference's bits, and another type on the way, but closer to the true
result than the reference is.

reference: b_product_ta
device: both
verdict: SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a.T.double() @ b.double()).float()
