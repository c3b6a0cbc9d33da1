"""Weights below a ten-thousandth are left out.

reference: l_ema
device: both
verdict: not SAME
"""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.w = nn.Parameter(torch.randn(C))

    def forward(self, x):
        T = x.shape[1]
        i = torch.arange(T, device=x.device)
        d = i[:, None] - i
        L = torch.where(d >= 0, torch.exp(F.logsigmoid(self.w)[:, None, None] * d), 0.0)
        L = torch.where(L < 1e-4, 0.0, L)
        return torch.einsum("cts,bsc->btc", L, x * torch.sigmoid(-self.w))
