"""Its own normalisation, and the diagonal filled in place.

reference: r_contrastive
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, tau=0.1):
        super().__init__()
        self.tau = tau

    def forward(self, z, label):
        z = z / torch.linalg.vector_norm(z, dim=1, keepdim=True).clamp_min(1e-12)
        s = torch.mm(z, z.t()).div_(self.tau)
        pos = (label[:, None] == label).to(z.dtype).fill_diagonal_(0)
        c = pos.sum(1)
        hit = torch.einsum("ij,ij->i", s, pos)
        lse = s.fill_diagonal_(float("-inf")).logsumexp(1)
        ok = c > 0
        per = torch.where(ok, lse - hit / c.clamp(min=1), torch.zeros_like(c))
        return per.sum() / ok.sum().clamp(min=1)
