"""C = A.T @ B.T, both operands stored transposed, of sizes that a CPU multiplies in some hundredths of a second."""

import torch
from torch import nn

M = 512
K = 2048
N = 1024


class Model(nn.Module):
    """A (K, M), B (N, K) -> (M, N)."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A.T, B.T)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(K, M), torch.rand(N, K)]


def get_init_inputs() -> list[object]:
    return []
