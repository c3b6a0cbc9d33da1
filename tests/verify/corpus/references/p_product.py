"""A product of two transposed operands with relu behind it."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
M, K, N = (1024, 2048, 1024) if DEVICE == "cuda" else (160, 192, 224)


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(torch.matmul(a.T, b.T))


def get_inputs():
    return [torch.rand(K, M, device=DEVICE), torch.rand(N, K, device=DEVICE)]


def get_init_inputs():
    return []
