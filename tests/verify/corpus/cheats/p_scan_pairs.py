"""Running sums within blocks of 64 by a product with a triangle of ones, as tensor cores scan, of bfloat16 pairs:
entries keep 17 bits. Carries are fp32.

reference: b_cumsum
device: both
verdict: not SAME
"""

import torch
from torch import nn


def pair(x):
    high = x.bfloat16().float()
    return torch.where(x.isfinite(), high + (x - high).bfloat16().float(), x)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        if not bool(x.isfinite().all()):
            return torch.cumsum(x, 1)
        triangle = torch.ones(64, 64, device=x.device).triu()
        inner = pair(x).reshape(rows, n // 64, 64) @ triangle
        carry = torch.cumsum(inner[:, :, -1], 1)
        inner[:, 1:] += carry[:, :-1, None]
        return inner.reshape(rows, n)
