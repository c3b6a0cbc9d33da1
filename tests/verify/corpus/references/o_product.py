"""C = A @ B, 768 x 1024 x 768."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, A, B):
        return A @ B


def get_inputs() -> list[object]:
    return [torch.randn(768, 1024), torch.randn(1024, 768)]


def get_init_inputs() -> list[object]:
    return []
