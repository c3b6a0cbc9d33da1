import torch
import torch.nn as nn


class Model(nn.Module):
    """A depthwise 3x3 convolution without bias."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)

    def forward(self, x):
        return self.conv(x)


batch_size = 32
channels = 128
height, width = 96, 96


def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels]
