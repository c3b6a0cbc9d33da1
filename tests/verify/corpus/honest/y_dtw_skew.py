"""DTW with the costs skewed once, so that each diagonal is a slice.

reference: y_dtw
device: both
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        b, n = x.shape
        cost = (x[:, :, None] - y[:, None, :]).abs()
        skew = F.pad(cost, (0, n)).reshape(b, -1)[:, : n * (2 * n - 1)].reshape(b, n, 2 * n - 1)
        skew = skew.permute(2, 0, 1).contiguous()
        inf = float("inf")
        older = x.new_full((b, n + 1), inf)
        old = x.new_full((b, n + 1), inf)
        new = x.new_full((b, n + 1), inf)
        older[:, 0] = 0.0
        for d in range(2, 2 * n + 1):
            lo, hi = max(1, d - n), min(n, d - 1)
            best = torch.minimum(torch.minimum(old[:, lo - 1 : hi], old[:, lo : hi + 1]), older[:, lo - 1 : hi])
            new.fill_(inf)
            torch.add(skew[d - 2, :, lo - 1 : hi], best, out=new[:, lo : hi + 1])
            older, old, new = old, new, older
        return old[:, n].clone()
