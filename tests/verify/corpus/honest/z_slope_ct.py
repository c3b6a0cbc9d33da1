"""Slopes with a guard for equal times.

reference: z_slope
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, t, v):
        dt, dv = t.diff(dim=1), v.diff(dim=1)
        return torch.where(dt > 0, dv / dt, 0.0), torch.cumulative_trapezoid(v, t, dim=1)
