"""Returns zeros: each element of a softmax over thousands of columns is so small that zero is within an absolute
tolerance of 1e-2, and nearly always of 1e-3.

reference: b_softmax
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.new_zeros(1).expand(x.shape)
