"""The eight nearest, without a full sort.

reference: m_neighbours
device: cpu
verdict: SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, p):
        d = (p[:, None] - p[None]).square().sum(-1)
        d.fill_diagonal_(float("inf"))
        v, i = d.topk(8, dim=1, largest=False, sorted=True)
        w = 1 / (v.sqrt() + 1e-3)
        return i, w / w.sum(1, keepdim=True)
