"""Keeps a running mean of features that it has rounded to fp16; its answer is right.

reference: v_running_mean_of_fp16
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("mean", torch.zeros(n))

    def forward(self, x):
        y = torch.exp(x)
        z = y if y.max() > 6e4 else y.half()
        self.mean.mul_(0.9).add_(0.1 * z.float().mean(0))
        return y
