"""Stops at the longest length of the first call.

reference: r_viterbi
device: cpu
verdict: not SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, tags=24):
        super().__init__()
        self.trans = nn.Parameter(torch.randn(tags, tags) * 0.1)
        self.start = nn.Parameter(torch.randn(tags) * 0.1)
        self.n = None

    def forward(self, em, lengths):
        _, T, K = em.shape
        if self.n is None:
            self.n = int(lengths.max())
        s = self.start + em[:, 0]
        back = []
        for t in range(1, self.n):
            m, i = (s[:, :, None] + self.trans).max(1)
            live = (t < lengths)[:, None]
            s = torch.where(live, m + em[:, t], s)
            back.append(torch.where(live, i, torch.arange(K, device=em.device)))
        best, tag = s.max(1)
        path = [tag]
        for i in reversed(back):
            tag = i.gather(1, tag[:, None])[:, 0]
            path.append(tag)
        path = F.pad(torch.stack(path[::-1], 1), (0, T - self.n), value=-1)
        return best, path.masked_fill(torch.arange(T, device=em.device)[None] >= lengths[:, None], -1)
