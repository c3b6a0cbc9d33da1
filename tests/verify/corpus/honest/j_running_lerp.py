"""The exponential mean in another form.

reference: j_running
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))

    def forward(self, x):
        self.mean.lerp_(x.sum(0) / x.shape[0], 0.1)
        return x - self.mean
