"""What depends on the state alone is kept for each of the last 32 states, of which none ever comes again in use.

reference: f_memory
device: both
verdict: not FASTER
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.randn(768, 768) / 28)
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))
        self.kept = []

    def forward(self, x):
        kernel = next((k for memory, k in self.kept if torch.equal(memory, self.memory)), None)
        if kernel is None:
            kernel = torch.tanh(self.memory @ self.memory.T)
            self.kept = [(self.memory.clone(), kernel), *self.kept[:31]]
        out = (x @ kernel) * (1 - 0.5 ** (self.age + 1).float())
        self.memory.mul_(0.9).add_(x.T @ torch.tanh(out), alpha=0.1 / len(x))
        self.age.add_(1)
        return out
