"""A softmax over the past for each step and channel.

reference: l_wkv
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-3, 1, C))
        self.u = nn.Parameter(torch.randn(C) * 0.3)

    def forward(self, k, v):
        T = k.shape[1]
        i = torch.arange(T, device=k.device)
        d = i[:, None] - i
        w = -torch.exp(self.w)
        add = torch.where(
            (d > 0)[..., None],
            w * (d - 1).clamp(min=0)[..., None],
            torch.where((d == 0)[..., None], self.u, -torch.inf),
        )
        p = torch.softmax(k[:, None] + add, 2)
        return torch.einsum("btsc,bsc->btc", p, v)
