import torch
from torch import nn


class Model(nn.Module):
    """Weighted averages over the past with a decay for each channel, kept finite by a running maximum."""

    def __init__(self, C):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-3, 1, C))
        self.u = nn.Parameter(torch.randn(C) * 0.3)

    def forward(self, k, v):
        w = -torch.exp(self.w)
        a = torch.zeros_like(v[:, 0])
        b = torch.zeros_like(a)
        m = torch.full_like(a, -1e38)
        out = []
        for t in range(k.shape[1]):
            kk, vv = k[:, t], v[:, t]
            n = torch.maximum(m, self.u + kk)
            e1, e2 = torch.exp(m - n), torch.exp(self.u + kk - n)
            out.append((e1 * a + e2 * vv) / (e1 * b + e2))
            n = torch.maximum(m + w, kk)
            e1, e2 = torch.exp(m + w - n), torch.exp(kk - n)
            a, b, m = e1 * a + e2 * vv, e1 * b + e2, n
        return torch.stack(out, 1)


def get_inputs():
    return [torch.randn(4, 96, 64), torch.randn(4, 96, 64)]


def get_init_inputs():
    return [64]
