import torch
from torch import nn


class Model(nn.Module):
    """Six measurements, of which entries may be missing: the mean of those that there are, by weight."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6, width) + 0.5)

    def forward(self, *parts):
        there = torch.stack([~torch.isnan(part) for part in parts])
        values = torch.stack([torch.nan_to_num(part) for part in parts])
        weight = self.weight[:, None] * there
        return (values * weight).sum(0) / weight.sum(0).clamp(min=1e-6)


def get_inputs():
    return [torch.randn(128, 96) for _ in range(6)]


def get_init_inputs():
    return [96]
