"""A mask of its own generator.

reference: j_dropout
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer, p):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.p = p

    def forward(self, x):
        y = self.linear(x)
        keep = torch.rand(y.shape, generator=torch.Generator(y.device).manual_seed(0), device=y.device) >= self.p
        return torch.softmax(y * keep / (1 - self.p), dim=1)
