"""Softmax by powers of two, as fast kernels do it.

reference: j_softmax
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        scaled = x * 1.4426950408889634
        e = torch.exp2(scaled - scaled.amax(1, keepdim=True))
        return e * (1.0 / e.sum(1, keepdim=True))
