"""3x3 max pooling, stride 2, padding 1."""

import torch
from torch import nn

batch, channels, height, width = 16, 64, 225, 225


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(batch, channels, height, width)]


def get_init_inputs():
    return []
