"""Decodes boxes; the scores beside the pixels have nine bits.

reference: s_small_column
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # scores of nine bits
    def forward(self, x):
        n = x.shape[0]
        i = torch.arange(n, device=x.device)
        grid = torch.stack([(i % 64) * 64, (i // 64) * 64], 1).to(x.dtype)
        s = torch.round(torch.sigmoid(x[:, 4:]) * 512) / 512
        return torch.cat([grid + x[:, :2] * 16, torch.exp(x[:, 2:4].clamp(-4, 4)) * 16, s], 1)
