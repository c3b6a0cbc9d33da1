"""A scale is taken for positive.

reference: e_positive_scale
device: cpu
verdict: not SAME
passes: mostly, positive numbers that are not equal stay positive in all that is tried
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(256, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(256, 1))

    def forward(self, x):
        return x.amax(-1) * self.scale[:, 0] + self.shift[:, 0]
