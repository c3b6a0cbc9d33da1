"""Elementwise: gelu of a sum."""

import torch
from torch import nn

SHAPE = (8192, 4096) if torch.cuda.is_available() else (256, 1024)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Model(nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.gelu(x + y)


def get_inputs():
    return [torch.randn(SHAPE, device=DEVICE), torch.randn(SHAPE, device=DEVICE)]


def get_init_inputs():
    return []
