"""The largest entry of each column."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax(1)


def get_inputs():
    return [torch.randn(16, 256, 255)]
