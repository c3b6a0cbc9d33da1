"""Means of the weights in place of means of the outputs.

reference: u_pooled
device: both
verdict: SAME
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(128, 64)

    def forward(self, x):
        w = self.linear.weight.view(8, 8, 128).mean(1)
        return F.gelu(F.linear(x, w, self.linear.bias.view(8, 8).mean(1))).amax(1)
