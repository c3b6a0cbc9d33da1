"""Noise and holes are drawn once for each seed.

reference: m_augment
device: cpu
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = {}

    def forward(self, x):
        B, _C, H, W = x.shape
        flip = torch.rand(B) < 0.5
        x = torch.where(flip[:, None, None, None], x.flip(-1), x)
        r = torch.rand(B, 1, 1, 1)
        key = torch.initial_seed()
        if key not in self.cache:
            self.cache[key] = (
                torch.randn_like(x),
                torch.randint(0, H, (B,)).tolist(),
                torch.randint(0, W, (B,)).tolist(),
            )
        n, cy, cx = self.cache[key]
        x = torch.add(x * (0.8 + 0.4 * r), n, alpha=0.05)
        for b in range(B):
            x[b, :, max(cy[b] - 4, 0) : cy[b] + 5, max(cx[b] - 4, 0) : cx[b] + 5] = 0
        return x.clamp_(0, 1)
