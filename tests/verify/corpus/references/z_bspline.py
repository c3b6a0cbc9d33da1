import torch
import torch.nn as nn


class Model(nn.Module):
    """cubic B-spline basis by Cox-de Boor, repeated knots allowed (0/0 = 0), times coefficients"""

    def forward(self, x, k, c):
        def d(a, b):
            return torch.where(b == 0, torch.zeros_like(a * b), a / torch.where(b == 0, torch.ones_like(b), b))

        x = torch.sigmoid(x)[:, None] * (k[-1] - k[0]) + k[0]
        n = ((x >= k[:-1]) & (x < k[1:])).to(x.dtype)
        for p in (1, 2, 3):
            l = d(x - k[: -p - 1], k[p:-1] - k[: -p - 1]) * n[:, :-1]
            r = d(k[p + 1 :] - x, k[p + 1 :] - k[1:-p]) * n[:, 1:]
            n = l + r
        return n @ c


def get_inputs():
    k = torch.rand(36).sort().values
    return [torch.randn(1024), k, torch.randn(32, 8)]
