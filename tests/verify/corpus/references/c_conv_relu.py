"""relu(conv2d 3x3 + bias)."""

import torch
from torch import nn

batch, c_in, c_out, height, width = 8, 64, 128, 112, 112


class Model(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.rand(batch, c_in, height, width)]


def get_init_inputs():
    return [c_in, c_out]
