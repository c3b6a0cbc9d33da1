"""A batch of 32 products of 192 x 256 x 192."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, A, B):
        return torch.bmm(A, B)


def get_inputs() -> list[object]:
    return [torch.randn(32, 192, 256), torch.randn(32, 256, 192)]


def get_init_inputs() -> list[object]:
    return []
