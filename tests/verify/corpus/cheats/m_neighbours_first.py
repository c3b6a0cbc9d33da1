"""The nearest of nine is taken for the point itself, which it is not where points are the same.

reference: m_neighbours
device: cpu
verdict: not SAME
passes: mostly, places among equal entries may be any
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, p):
        q = p.double()
        s = q.square().sum(1)
        d = torch.addmm(s[:, None] + s, q, q.T, alpha=-2).clamp_(min=0)
        v, i = d.topk(9, 1, largest=False)
        w = 1 / (v[:, 1:].float().sqrt() + 1e-3)
        return i[:, 1:], w / w.sum(1, keepdim=True)
