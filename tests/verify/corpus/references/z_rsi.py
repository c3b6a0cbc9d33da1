import torch
import torch.nn as nn


class Model(nn.Module):
    """relative strength index with Wilder's means (window 14), prices positive"""

    def forward(self, p):
        d = torch.log(p[:, 1:] / p[:, :-1])
        g = d.clamp(min=0).unfold(1, 14, 1).mean(-1)
        l = (-d).clamp(min=0).unfold(1, 14, 1).mean(-1)
        r = 100 - 100 / (1 + g / torch.where(l == 0, torch.ones_like(l), l))
        r = torch.where(l == 0, torch.full_like(r, 100.0), r)
        return torch.where((l == 0) & (g == 0), torch.full_like(r, 50.0), r)


def get_inputs():
    return [100 * torch.exp(torch.cumsum(torch.randn(64, 256) * 0.01, 1))]
