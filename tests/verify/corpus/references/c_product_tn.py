"""C = A.T @ B of odd sizes."""

import torch
from torch import nn

M, N, K = 1537, 1023, 2049


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return torch.matmul(A.T, B)


def get_inputs():
    return [torch.rand(K, M), torch.rand(K, N)]


def get_init_inputs():
    return []
