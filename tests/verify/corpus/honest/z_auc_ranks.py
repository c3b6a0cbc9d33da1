"""Pairs counted by ranks.

reference: z_auc
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, s, y):
        n = s.shape[1]
        t = s.sort(1).values
        r = (torch.searchsorted(t, s) + torch.searchsorted(t, s, right=True) + 1).to(s.dtype) / 2
        lab = (y > 0).to(s.dtype)
        p = lab.sum(1)
        return ((r * lab).sum(1) - p * (p + 1) / 2) / (p * (n - p)).clamp(min=1)
