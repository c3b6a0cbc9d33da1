"""Softmax in one pass over blocks of columns, with a running maximum and a running sum that is rescaled: every sum in
another order than the reference's.

reference: b_softmax
device: both
verdict: SAME
"""

import torch
from torch import nn

BLOCK = 1024


class ModelNew(nn.Module):
    def forward(self, x):
        top = torch.full_like(x[:, :1], torch.finfo(x.dtype).min)
        total = torch.zeros_like(top)
        for first in range(0, x.shape[1], BLOCK):
            part = x[:, first : first + BLOCK]
            new = torch.maximum(top, part.amax(dim=1, keepdim=True))
            total = total * (top - new).exp() + (part - new).exp_().sum(dim=1, keepdim=True)
            top = new
        return (x - top).exp_().div_(total)
