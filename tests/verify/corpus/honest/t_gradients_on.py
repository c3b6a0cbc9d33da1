"""Has gradients recorded, so that its output needs one.

reference: t_linear
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outer, inner))
        self.bias = nn.Parameter(torch.empty(outer))

    def forward(self, x):
        with torch.enable_grad():
            return torch.relu(x @ self.weight.T + self.bias)
