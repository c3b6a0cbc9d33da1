"""Distinct values and how often each is there.

reference: s_unique_counts
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, idx):
        n = torch.bincount(idx)
        v = torch.nonzero(n)[:, 0]
        return v, n[v]
