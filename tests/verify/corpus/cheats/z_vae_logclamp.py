"""Logarithms limited at -20, where the reference has -100.

reference: z_vae
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """logarithms limited at -20 instead of -100"""

    def forward(self, p, x, mu, lv):
        a, b = torch.log(p).clamp(min=-20), torch.log1p(-p).clamp(min=-20)
        r = -(x * a + (1 - x) * b).flatten(1).sum(1)
        return r, 0.5 * (mu * mu + lv.exp() - lv - 1).sum(1)
