"""The largest by pieces: the eight largest of each of 16 pieces, then the eight largest of those 128, which is right
for all rows.

reference: o_top_k
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        rows, n = x.shape
        piece = n // 16
        values, indices = torch.topk(x.view(rows, 16, piece), self.k, dim=2)
        indices = indices + (torch.arange(16, device=x.device) * piece)[None, :, None]
        values, where = torch.topk(values.flatten(1), self.k, dim=1)
        return values, indices.flatten(1).gather(1, where)
