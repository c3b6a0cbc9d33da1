"""Each pass joins states twice as far apart.

reference: l_selective
device: both
verdict: SAME
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
        a = torch.exp(dt[..., None] * -torch.exp(self.A))
        h = (dt * u)[..., None] * B[:, :, None]
        s = 1
        while s < u.shape[1]:
            h = torch.cat([h[:, :s], torch.addcmul(h[:, s:], a[:, s:], h[:, :-s])], 1)
            a = torch.cat([a[:, :s], a[:, s:] * a[:, :-s]], 1)
            s *= 2
        return torch.einsum("btdn,btn->btd", h, C) + u * self.D
