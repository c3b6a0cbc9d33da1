"""Logarithms without the limit of -100: NaN or Inf where a probability is 0 or 1.

reference: z_bce
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, p, t):
        return -(t * torch.log(p) + (1 - t) * torch.log1p(-p)).mean(dim=1)
