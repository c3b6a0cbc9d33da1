"""Edit distances in a band of 4 beside the diagonal.

reference: z_edit
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """band of +-4 around the diagonal"""

    def forward(self, a, b):
        n, m = a.shape[1], b.shape[1]
        j = torch.arange(m + 1, device=a.device)
        prev = j.repeat(a.shape[0], 1)
        for i in range(n):
            sub = prev[:, :-1] + (a[:, i : i + 1] != b).long()
            c = torch.cat([torch.full_like(prev[:, :1], i + 1), torch.minimum(sub, prev[:, 1:] + 1)], 1)
            c = torch.where((j - i - 1).abs() > 4, 1000, c)
            prev = (c - j).cummin(1).values + j
        return prev[:, -1]
