"""Tokens sorted by expert, one product for each group.

reference: y_moe
device: both
verdict: SAME
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d, e, hid):
        super().__init__()
        self.gate = nn.Linear(d, e, bias=False)
        self.w1 = nn.Parameter(torch.randn(e, d, hid) / math.sqrt(d))
        self.w2 = nn.Parameter(torch.randn(e, hid, d) / math.sqrt(hid))

    def forward(self, x):
        score, idx = self.gate(x).topk(2, dim=-1)
        w = score.softmax(-1)  # the rest of the softmax cancels
        flat, order = idx.reshape(-1).sort()
        counts = torch.bincount(flat, minlength=self.w1.shape[0]).tolist()
        rows = order // 2
        parts = []
        for e, xs in enumerate(x[rows].split(counts)):
            parts.append(F.silu(xs @ self.w1[e]) @ self.w2[e])
        y = torch.cat(parts) * w.reshape(-1)[order][:, None]
        return torch.zeros_like(x).index_add_(0, rows, y)
