"""A convolution of 3 by 3."""

import torch
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


BATCH, SIDE = (32, 64) if CUDA else (4, 32)


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(BATCH, 8, SIDE, SIDE, device=DEVICE)]


def get_init_inputs():
    return [8, 16]
