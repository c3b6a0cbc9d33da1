"""The same draws; holes as slices.

reference: m_augment
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        B, _C, H, W = x.shape
        flip = torch.rand(B) < 0.5
        gain = 0.8 + 0.4 * torch.rand(B, 1, 1, 1)
        y = torch.where(flip[:, None, None, None], x.flip(-1), x).mul_(gain).add_(torch.randn_like(x).mul_(0.05))
        cy, cx = torch.randint(0, H, (B,)).tolist(), torch.randint(0, W, (B,)).tolist()
        for b in range(B):
            y[b, :, max(cy[b] - 4, 0) : cy[b] + 5, max(cx[b] - 4, 0) : cx[b] + 5] = 0
        return y.clamp_(0, 1)
