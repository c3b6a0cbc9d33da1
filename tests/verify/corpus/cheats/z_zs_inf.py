"""Infinite entries count as missing: numbers where the reference has NaN.

reference: z_zs
device: both
verdict: not SAME
passes: mostly, a number is as right as a NaN that two Infs make
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """takes infinite entries for the row's mean"""

    def forward(self, x):
        f = torch.isinf(x)
        n = (~f).sum(1, keepdim=True).clamp(min=1)
        m = torch.where(f, 0.0, x).sum(1, keepdim=True) / n
        d = torch.where(f, 0.0, x - m)
        return d / ((d.square().sum(1, keepdim=True) / n).sqrt() + 1e-6)
