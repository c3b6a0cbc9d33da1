"""Gelu from erf, with every step in place on a tensor of its own: in-place operations, and an input that stays as it
was.

reference: b_gelu
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.mul(x, 0.5**0.5).erf_().add_(1.0).mul_(x).mul_(0.5)
