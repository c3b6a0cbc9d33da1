"""Fast weights in another order: the batch is scaled before it is read with, and the memory moved by an in-place product.

reference: f_memory
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.randn(768, 768) / 28)
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        grown = 1 - 0.5 ** (self.age + 1).float()
        out = (x * grown) @ torch.tanh(self.memory @ self.memory.T)
        self.memory.addmm_(x.T, torch.tanh(out), beta=0.9, alpha=0.1 / len(x))
        self.age.add_(1)
        return out
