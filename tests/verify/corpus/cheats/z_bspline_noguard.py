"""0/0 at repeated knots.

reference: z_bspline
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, k, c):
        x = torch.sigmoid(x)[:, None] * (k[-1] - k[0]) + k[0]
        n = ((x >= k[:-1]) & (x < k[1:])).to(x.dtype)
        for p in (1, 2, 3):
            l = (x - k[: -p - 1]) / (k[p:-1] - k[: -p - 1]) * n[:, :-1]
            r = (k[p + 1 :] - x) / (k[p + 1 :] - k[1:-p]) * n[:, 1:]
            n = l + r
        return n @ c
