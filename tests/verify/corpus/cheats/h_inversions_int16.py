"""Counts in 16 bits, which a row that falls overflows.

reference: h_inversions
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        later = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool, device=x.device).triu(1)
        wrong = (x.unsqueeze(-1) > x.unsqueeze(-2)) & later
        return wrong.sum((-1, -2)).to(torch.int16).long()
