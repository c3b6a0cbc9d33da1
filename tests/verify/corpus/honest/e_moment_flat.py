"""Keeps the moment flat under another name: the reference's could not be copied, and nothing is asked of it.

reference: e_moment
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("flat", torch.eye(768).reshape(-1))

    def forward(self, x):
        y = (x - x.mean(0)) * torch.rsqrt(x.var(0, unbiased=False) + 1e-5)
        self.flat.view(768, 768).mul_(0.99).add_(y.T @ y, alpha=0.01 / len(x))
        return y
