"""Means of what is there by nansum.

reference: z_nanz
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        n = (x == x).sum(1, keepdim=True)
        mu = torch.nansum(x, 1, keepdim=True) / n.clamp(min=1)
        d = x - mu
        q = torch.nansum(d * d, 1, keepdim=True)
        sd = (q / (n - 1).clamp(min=1)).sqrt()
        r = d / (sd + 1e-6)
        return torch.where((x == x) & (n > 1), r, 0.0)
