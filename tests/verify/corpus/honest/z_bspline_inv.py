"""Knots' distances inverted once.

reference: z_bspline
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, k, c):
        x = torch.sigmoid(x)[:, None] * (k[-1] - k[0]) + k[0]
        n = ((x >= k[:-1]) & (x < k[1:])).to(x.dtype)
        for p in (1, 2, 3):
            g = k[p:] - k[:-p]
            z = g == 0
            w = torch.where(z, 0.0, (x - k[:-p]) / g)
            v = torch.where(z, 0.0, (k[p:] - x) / g)
            n = w[:, :-1] * n[:, :-1] + v[:, 1:] * n[:, 1:]
        return n @ c
