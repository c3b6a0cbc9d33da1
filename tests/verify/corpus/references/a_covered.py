"""Averages of what is seen of each row, where all rows are seen alike."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, seen):
        count = seen.sum(1, keepdim=True).clamp(min=1)
        return torch.where(seen, x, 0.0).sum(1, keepdim=True) / count - x


def get_inputs():
    return [torch.randn(64, 128), (torch.rand(128) < 0.6).expand(64, 128).contiguous()]
