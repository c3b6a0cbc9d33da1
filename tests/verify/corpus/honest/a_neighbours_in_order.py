"""Edges in the order of their targets, and a factor in place of a choice.

reference: a_neighbours
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, edges, weight, x):
        target, order = edges[1].sort(stable=True)
        source = edges[0][order]
        weight = weight[order].masked_fill(source == target, 0)
        return torch.zeros_like(x).index_add_(0, target, weight[:, None] * x[source])
