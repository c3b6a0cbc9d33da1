"""The running mean moves on in place by lerp_, the rest is one temporary fewer.

reference: o_running_mean
device: both
verdict: SAME
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
        return (x - self.average).tanh_()
