"""Softmax whose sum is one fp32 sum in order, as one thread a row computes it.

reference: j_softmax
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(1, keepdim=True))
        total = torch.zeros_like(e[:, 0])
        for column in e.unbind(1):
            total = total + column
        return e / total[:, None]
