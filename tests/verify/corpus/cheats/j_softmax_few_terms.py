"""Softmax whose sum is taken from every second entry, doubled: right on average.

reference: j_softmax
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / (2 * e[..., ::2].sum(-1, keepdim=True))
