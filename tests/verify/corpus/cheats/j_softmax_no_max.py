"""Softmax without subtracting the maximum: overflows for large inputs only.

reference: j_softmax
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x)
        return e / e.sum(-1, keepdim=True)
