import torch
import torch.nn as nn


class Model(nn.Module):
    """Keys of the last 48 calls."""

    def __init__(self, n, length):
        super().__init__()
        self.key = nn.Linear(n, n)
        self.register_buffer("cache", torch.zeros(length, n))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.cache[int(self.count) % len(self.cache)] = self.key(x).mean(0)
        self.count += 1
        return torch.softmax(x @ self.cache.t(), -1)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return [64, 48]
