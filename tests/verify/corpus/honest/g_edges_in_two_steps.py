"""Smooths and takes differences in turn. At borders a difference is 0, and its sign, with it the angle's, is rounding's.

reference: g_edges
device: cpu
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        x = F.pad(x, (1, 1, 1, 1), mode="reflect")[:, 0]
        down = (x[:, :-2] + x[:, 2:]) + 2 * x[:, 1:-1]
        across = (x[..., :-2] + x[..., 2:]) + 2 * x[..., 1:-1]
        first, second = down[..., :-2] - down[..., 2:], across[:, :-2] - across[:, 2:]
        return (first * first + second * second).sqrt(), torch.atan2(second, first)
