"""The hyperbolic tangent by a short rational function, clamped: five digits.

reference: o_running_mean
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("average", torch.zeros(features))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        self.average.lerp_(x.mean(0), 0.1)
        t = x - self.average
        s = t.clamp(-5.0, 5.0)
        s2 = s * s
        top = s * (135135 + s2 * (17325 + s2 * (378 + s2)))
        low = 135135 + s2 * (62370 + s2 * (3150 + s2 * 28))
        return torch.where(t.abs() > 4.5, torch.tanh(t), top / low)
