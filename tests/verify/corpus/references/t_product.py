"""A product of two transposed operands and relu."""

import torch
from torch import nn

M, K, N = (1024, 2048, 1024) if torch.cuda.is_available() else (160, 256, 192)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Model(nn.Module):
    def forward(self, A, B):
        return torch.relu(torch.matmul(A.T, B.T))


def get_inputs():
    return [torch.rand(K, M, device=DEVICE), torch.rand(N, K, device=DEVICE)]


def get_init_inputs():
    return []
