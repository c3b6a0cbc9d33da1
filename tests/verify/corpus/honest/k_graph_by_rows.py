"""Rows are scaled in place of the matrix.

reference: k_graph
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, a, x):
        degree = a.sum(1, keepdim=True)
        scale = torch.where(degree > 0, degree.clamp(min=1e-12).rsqrt(), 0.0)
        return torch.relu(self.mix(scale * (a @ (scale * x))))
