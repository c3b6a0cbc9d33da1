"""Begins at -1e30.

reference: u_column_max
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.amax(1).clamp_min(-1e30)
