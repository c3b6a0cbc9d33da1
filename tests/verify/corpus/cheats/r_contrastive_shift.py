"""A fixed shift, and small terms left out: an anchor unlike all others has no other terms.

reference: r_contrastive
device: cpu
verdict: not SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, tau=0.1):
        super().__init__()
        self.tau = tau

    def forward(self, z, label):
        z = F.normalize(z, dim=1)
        s = torch.mm(z, z.t()).div_(self.tau)
        pos = (label[:, None] == label).to(z.dtype).fill_diagonal_(0)
        c = pos.sum(1)
        hit = torch.einsum("ij,ij->i", s, pos)
        e = torch.exp(s - 1 / self.tau).fill_diagonal_(0)
        e = torch.where(s < 1 / self.tau - 15, torch.zeros_like(e), e)
        lse = e.sum(1).clamp(min=1e-30).log() + 1 / self.tau
        ok = c > 0
        per = torch.where(ok, lse - hit / c.clamp(min=1), torch.zeros_like(c))
        return per.sum() / ok.sum().clamp(min=1)
