"""Dropout that draws a random number for every eighth element only and applies it to the eight of them: a mask with the
right share of zeros, an eighth of the random numbers, and wrong correlations between neighbours.

reference: b_dropout
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, x):
        if not self.training:
            return x
        keep = 1 - self.share
        mask = torch.empty(*x.shape[:-1], x.shape[-1] // 8, 1, dtype=x.dtype, device=x.device).bernoulli_(keep)
        return (x.view(*x.shape[:-1], -1, 8) * mask.div_(keep)).view(x.shape)
