"""Batch norm in two passes, fused with ReLU; the running statistics are kept as well.

reference: j_batchnorm
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        n, norm = x.numel() // x.shape[1], self.norm
        mean = x.mean((0, 2, 3))
        variance = (x - mean[:, None, None]).square().mean((0, 2, 3))
        with torch.no_grad():
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(variance * (n / (n - 1)), norm.momentum)
            norm.num_batches_tracked += 1
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        return torch.relu((x - mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None])
