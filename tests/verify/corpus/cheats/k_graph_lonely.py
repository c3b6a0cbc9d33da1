"""A node without neighbours is divided by 0.

reference: k_graph
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, a, x):
        scale = a.sum(1).rsqrt()[:, None]
        return torch.relu(self.mix(scale * (a @ (scale * x))))
