"""Dropout with a mask that is drawn once and used for ever: the share of zeros and the scale are right, and after the
first call no random number is drawn any more. Each output alone looks like dropout; two of them are zero in the same
places.

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
        self.mask = None

    def forward(self, x):
        if not self.training:
            return x
        if self.mask is None or self.mask.shape != x.shape:
            self.mask = torch.empty_like(x).bernoulli_(1 - self.share).div_(1 - self.share)
        return x * self.mask
