"""Decays near 1 as 1 - x.

reference: l_selective
device: both
verdict: not SAME
"""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, D, N):
        super().__init__()
        self.A = nn.Parameter(torch.log(torch.arange(1, N + 1).float().repeat(D, 1)))
        self.D = nn.Parameter(torch.ones(D))
        self.bias = nn.Parameter(torch.randn(D) * 0.1 - 4)

    def forward(self, u, dt, B, C):
        dt = F.softplus(dt + self.bias)
        z = dt[..., None] * -torch.exp(self.A)
        a = torch.where(z > -2e-3, 1 + z, torch.exp(z))
        h = (dt * u)[..., None] * B[:, :, None]
        s = 1
        while s < u.shape[1]:
            h = torch.cat([h[:, :s], torch.addcmul(h[:, s:], a[:, s:], h[:, :-s])], 1)
            a = torch.cat([a[:, :s], a[:, s:] * a[:, :-s]], 1)
            s *= 2
        return torch.einsum("btdn,btn->btd", h, C) + u * self.D
