"""Counts edges from a node to itself, of which there are none.

reference: a_neighbours
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, edges, weight, x):
        return torch.zeros_like(x).index_add_(0, edges[1], weight[:, None] * x[edges[0]])
