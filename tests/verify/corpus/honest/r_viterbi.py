"""Transitions transposed, and the places of all steps in one tensor.

reference: r_viterbi
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, tags=24):
        super().__init__()
        self.trans = nn.Parameter(torch.randn(tags, tags) * 0.1)
        self.start = nn.Parameter(torch.randn(tags) * 0.1)

    def forward(self, em, lengths):
        B, T, K = em.shape
        tt = self.trans.t().contiguous()
        s = self.start + em[:, 0]
        back = torch.empty(T, B, K, dtype=torch.long, device=em.device)
        iota = torch.arange(K, device=em.device).expand(B, K)
        live = torch.arange(T, device=em.device)[:, None, None] < lengths[None, :, None]
        for t in range(1, T):
            m, i = torch.max(s[:, None, :] + tt, -1)
            s = torch.where(live[t], m + em[:, t], s)
            back[t] = torch.where(live[t], i, iota)
        best, tag = s.max(1)
        path = torch.empty(B, T, dtype=torch.long, device=em.device)
        path[:, -1] = tag
        for t in range(T - 1, 0, -1):
            tag = back[t].gather(1, tag[:, None]).squeeze(1)
            path[:, t - 1] = tag
        path[~live[:, :, 0].t()] = -1
        return best, path
