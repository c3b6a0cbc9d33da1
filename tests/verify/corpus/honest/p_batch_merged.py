"""Batch norm whose statistics are merged from those of single images, by Chan's formula.

reference: o_batch_norm
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.train()

    def forward(self, x):
        norm, size = self.norm, x[0, 0].numel()
        mean, squares, count = torch.zeros_like(x[0, :, 0, 0]), torch.zeros_like(x[0, :, 0, 0]), 0
        for image in x.flatten(2):
            own = image.mean(1)
            apart = own - mean
            total = count + size
            squares = squares + (image - own[:, None]).square().sum(1) + apart * apart * (count * size / total)
            mean, count = mean + apart * (size / total), total
        if norm.training:
            norm.num_batches_tracked.add_(1)
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(squares / (count - 1), norm.momentum)
        factor = norm.weight * (squares / count + norm.eps).rsqrt()
        y = (x - mean[:, None, None]) * factor[:, None, None] + norm.bias[:, None, None]
        return torch.relu(y)
