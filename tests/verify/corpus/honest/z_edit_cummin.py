"""Edit distances row by row, by a running minimum.

reference: z_edit
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        n, m = a.shape[1], b.shape[1]
        j = torch.arange(m + 1, device=a.device)
        prev = j.repeat(a.shape[0], 1)
        ne = (a[:, :, None] != b[:, None, :]).long()
        for i in range(n):
            c = torch.cat(
                [torch.full_like(prev[:, :1], i + 1), torch.minimum(prev[:, :-1] + ne[:, i], prev[:, 1:] + 1)], 1
            )
            prev = (c - j).cummin(1).values + j
        return prev[:, -1]
