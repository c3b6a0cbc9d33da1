"""Centres its input in place and adds the mean again afterwards, which does not give back the same bits.

reference: o_running_mean
device: both
verdict: rejected
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
        x.sub_(self.average)
        y = torch.tanh(x)
        x.add_(self.average)
        return y
