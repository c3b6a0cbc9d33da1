"""A batch norm in training mode: the batch's statistics go into its buffers."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.train()

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs() -> list[object]:
    return [torch.randn(8, 32, 64, 64)]


def get_init_inputs() -> list[object]:
    return [32]
