"""Takes the three largest of each of 2048 pieces and the eight largest of those: wrong for a row whose large entries
are neighbours.

reference: o_top_k
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        rows, n = x.shape
        piece = n // 2048
        values, indices = torch.topk(x.view(rows, 2048, piece), 3, dim=2)
        indices = indices + (torch.arange(2048, device=x.device) * piece)[None, :, None]
        values, where = torch.topk(values.flatten(1), self.k, dim=1)
        return values, indices.flatten(1).gather(1, where)
