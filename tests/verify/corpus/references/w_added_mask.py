import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v, mask):
        return torch.softmax(q @ k.mT / 8 + mask, -1) @ v


def get_inputs():
    return [*(torch.randn(2, 64, 64) for _ in range(3)), torch.full((64, 64), float("-inf")).triu(1)]


def get_init_inputs():
    return []
