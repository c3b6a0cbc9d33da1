import torch
import torch.nn as nn


class Model(nn.Module):
    """Group norm over images."""

    def __init__(self, groups, channels):
        super().__init__()
        self.gn = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.gn(x)


batch_size = 32
groups, channels = 32, 256
height, width = 48, 48


def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]


def get_init_inputs():
    return [groups, channels]
