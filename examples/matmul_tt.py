"""C = A.T @ B.T: both operands are stored transposed."""

import torch
from torch import nn

M = 1024 * 2
K = 4096 * 2
N = 2048 * 2


class Model(nn.Module):
    """A (K, M), B (N, K) -> (M, N)."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A.T, B.T)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(K, M), torch.rand(N, K)]


def get_init_inputs() -> list[object]:
    return []
