"""A codebook that learns without smoothing of its counts.

reference: z_vq
device: both
verdict: not SAME
passes: mostly, buffers are compared on its own data, where it matters by a millionth
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, d):
        super().__init__()
        e = torch.randn(k, d)
        self.register_buffer("e", e)
        self.register_buffer("n", torch.ones(k))
        self.register_buffer("s", e.clone())

    def forward(self, x):
        d = (x[:, None] - self.e[None]).square().sum(-1)
        i = d.argmin(1)
        q = self.e[i]
        self.n.mul_(0.99).add_(torch.bincount(i, minlength=len(self.n)).to(x.dtype), alpha=0.01)
        self.s.mul_(0.99).index_add_(0, i, x, alpha=0.01)
        self.e.copy_(self.s / self.n[:, None])
        return q, i, (q - x).square().mean()
