"""Pools by lengths; padding is not read.

reference: s_sum_of_masked
device: cpu
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # padding is not read
    def forward(self, x, lengths):
        return torch.stack([r[:n].sum(0) / n for r, n in zip(x, lengths.tolist(), strict=True)])
