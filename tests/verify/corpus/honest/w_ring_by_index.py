"""A ring of 48 keys, its place counted on the device.

reference: w_ring
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, length):
        super().__init__()
        self.key = nn.Linear(n, n)
        self.register_buffer("cache", torch.zeros(length, n))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.cache.index_copy_(0, (self.count % len(self.cache)).view(1), self.key(x.mean(0, keepdim=True)))
        self.count += 1
        return torch.softmax(x @ self.cache.t(), -1)
