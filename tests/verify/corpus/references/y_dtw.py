import torch
from torch import nn

B, T = 8, 32


class Model(nn.Module):
    """Dynamic time warping: x, y (B, T) -> distance (B,), over antidiagonals."""

    def forward(self, x, y):
        n = x.shape[1]
        cost = (x[:, :, None] - y[:, None, :]).abs()
        inf = float("inf")
        older = x.new_full((x.shape[0], n + 1), inf)  # diagonal d - 2, by row index i (0..n)
        old = x.new_full((x.shape[0], n + 1), inf)
        older[:, 0] = 0.0
        for d in range(2, 2 * n + 1):
            lo, hi = max(1, d - n), min(n, d - 1)
            i = torch.arange(lo, hi + 1, device=x.device)
            c = cost[:, i - 1, d - i - 1]
            best = torch.minimum(torch.minimum(old[:, i - 1], old[:, i]), older[:, i - 1])
            new = torch.full_like(old, inf)
            new[:, i] = c + best
            older, old = old, new
        return old[:, n]


def get_inputs():
    return [torch.randn(B, T), torch.randn(B, T)]


def get_init_inputs():
    return []
