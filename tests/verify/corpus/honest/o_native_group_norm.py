"""torch's own fused group norm instead of single steps.

reference: o_group_norm
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.nn.functional.group_norm(x, self.groups, self.weight, self.bias, 1e-5)
