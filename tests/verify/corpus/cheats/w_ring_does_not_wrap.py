"""A ring of 48 keys that stays at its end: wrong from the forty-ninth call on.

reference: w_ring
device: both
verdict: not SAME
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
        self.cache[min(int(self.count), len(self.cache) - 1)] = self.key(x.mean(0))
        self.count += 1
        return torch.softmax(x @ self.cache.t(), -1)
