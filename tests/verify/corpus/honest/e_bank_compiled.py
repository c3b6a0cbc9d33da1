"""The update is compiled into one pass; the buffers are the reference's own.

reference: e_bank
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


def moved(bank, mean, x):
    mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    bank.mul_(0.99).add_(torch.tanh(bank + mean), alpha=0.01)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bank", torch.randn(4096, 512))
        self.register_buffer("mean", torch.zeros(512))
        self.step = torch.compile(moved, dynamic=False)

    def forward(self, x):
        out = x @ self.bank[:256].T
        self.step(self.bank, self.mean, x)
        return out
