"""A row of length 0 is taken for one of length 1.

reference: r_cache
device: cpu
verdict: not SAME
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v, lengths):
        out = torch.empty_like(q)
        for b, n in enumerate(lengths.clamp_min(1).tolist()):
            s = torch.bmm(q[b], k[b, :, :n].transpose(1, 2)) / math.sqrt(q.shape[-1])
            out[b] = torch.bmm(torch.softmax(s, -1), v[b, :, :n])
        return out
