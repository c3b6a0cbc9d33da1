"""Floyd-Warshall in blocks of 16, in place.

reference: y_floyd
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, w):
        d = w.abs()
        d.fill_diagonal_(0)
        n, s = d.shape[0], 16
        for o in range(0, n, s):
            blk = slice(o, o + s)
            p = d[blk, blk]
            for k in range(s):
                torch.minimum(p, p[:, k : k + 1] + p[k : k + 1], out=p)
            rows = d[blk, :].clone()
            cols = d[:, blk].clone()
            rows = torch.minimum(rows, (p[:, :, None] + rows[None]).amin(1))
            cols = torch.minimum(cols, (cols[:, :, None] + p[None]).amin(1))
            d = torch.minimum(d, (cols[:, :, None] + rows[None]).amin(1))
        return d
