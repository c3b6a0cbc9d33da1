"""Elimination in float64, with the largest entry of a column as its pivot.

reference: h_solve
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        m = torch.cat([a, b], -1).double()
        every = torch.arange(len(m), device=m.device)
        for k in range(4):
            best = m[:, k:, k].abs().argmax(1) + k
            mine, other = m[every, k].clone(), m[every, best].clone()
            m[every, best], m[every, k] = mine, other
            row = m[:, k : k + 1] / m[:, k : k + 1, k : k + 1]
            m = m - m[:, :, k : k + 1] * row
            m[:, k : k + 1] = row
        return m[..., 4:].float()
