"""The logarithm of a sum of exponentials, base two inside, the sum in order.

reference: j_logsumexp
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        top = x.amax(1)
        top = torch.where(top.isfinite(), top, torch.zeros_like(top))
        total = torch.zeros_like(top)
        for column in torch.exp2((x - top[:, None]) * 1.4426950408889634).unbind(1):
            total = total + column
        return torch.log2(total) * 0.6931471805599453 + top
