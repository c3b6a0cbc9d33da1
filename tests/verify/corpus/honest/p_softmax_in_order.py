"""Softmax with its sum in order, one number after the other.

reference: o_softmax
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        total = torch.zeros_like(e[:, 0])
        for column in e.unbind(1):
            total = total + column
        return e / total[:, None]
