"""The bank is a parameter without a gradient, under the same name, and assigned in one step.

reference: e_bank
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bank = nn.Parameter(torch.randn(4096, 512), requires_grad=False)
        self.register_buffer("mean", torch.zeros(512))

    def forward(self, x):
        out = x @ self.bank[:256].T
        self.mean.lerp_(x.mean(0), 0.1)
        kept = 0.99 * self.bank
        self.bank.data = kept + 0.01 * torch.tanh(kept + self.mean)
        return out
