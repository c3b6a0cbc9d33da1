"""The variance in two passes with serial sums.

reference: j_variance
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.is_cuda:
            return (x - x.mean(1, keepdim=True)).square().sum(1) / (x.shape[1] - 1)
        total = torch.zeros_like(x[:, 0])
        for column in x.unbind(1):
            total = total + column
        mean = total / x.shape[1]
        squares = torch.zeros_like(mean)
        for column in x.unbind(1):
            squares = squares + (column - mean) * (column - mean)
        return squares / (x.shape[1] - 1)
