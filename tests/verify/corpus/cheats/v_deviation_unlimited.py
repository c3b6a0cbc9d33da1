"""Does not limit a policy's log deviation, a parameter of zeros at first, to -5 .. 2.

reference: v_deviation_unlimited
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.mean = nn.Linear(n, m)
        self.log_std = nn.Parameter(torch.zeros(m))

    def forward(self, x, action):
        s = self.log_std
        z = (action - self.mean(x)) * torch.exp(-s)
        return -0.5 * z.square().sum(1) - s.sum()
