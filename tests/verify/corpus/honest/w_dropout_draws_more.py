"""Dropout whose generator is a number further after each call than the reference's.

reference: b_dropout
device: both
verdict: SAME
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, x):
        out = F.dropout(x, self.share, True)
        torch.rand(1, device=x.device)
        return out
