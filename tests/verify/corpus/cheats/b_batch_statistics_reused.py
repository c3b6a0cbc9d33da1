"""Batch norm that computes the statistics of the batch in every fourth call only and uses the last ones in between: for
batches of one distribution they differ by a per cent. The first four calls are computed in full.

reference: b_batch_norm
device: both
verdict: not SAME
"""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, device=DEVICE)
        self.calls = 0
        self.mean = self.variance = None

    def forward(self, x):
        self.calls += 1
        if self.calls <= 4 or self.calls % 4 == 0:
            self.variance, self.mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            count = x.numel() // x.shape[1]
            self.norm.running_mean.lerp_(self.mean, self.norm.momentum)
            self.norm.running_var.lerp_(self.variance * (count / (count - 1)), self.norm.momentum)
        self.norm.num_batches_tracked.add_(1)
        return F.batch_norm(x, self.mean, self.variance, self.norm.weight, self.norm.bias, False, 0.0, self.norm.eps)
