"""Sorts the edges at every call and adds up segments.

reference: x_edges
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(64, 64)

    def forward(self, x, edges):
        order = torch.argsort(edges[1])
        counts = torch.bincount(edges[1], minlength=x.shape[0])
        return torch.segment_reduce(self.lift(x)[edges[0, order]], "sum", lengths=counts, axis=0, initial=0)
