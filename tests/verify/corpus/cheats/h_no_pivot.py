"""Elimination without a search for a pivot, in float64: right unless one is zero.

reference: h_solve
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        m = torch.cat([a, b], -1).double()
        for k in range(4):
            row = m[:, k : k + 1] / m[:, k : k + 1, k : k + 1]
            m = m - m[:, :, k : k + 1] * row
            m = torch.cat([m[:, :k], row, m[:, k + 1 :]], 1)
        return m[..., 4:].float()
