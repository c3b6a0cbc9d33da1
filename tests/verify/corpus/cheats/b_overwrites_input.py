"""Computes in place and returns its input: the result is right, the caller's data is gone. Calling it twice on the same
tensor gives the gelu of the gelu; a judge that hands the same tensor to the reference afterwards hands it the wrong
one.

reference: b_gelu
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch._C._nn.gelu(x, out=x)
