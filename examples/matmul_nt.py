"""C = A @ B.T: the second operand is stored transposed, as a Linear layer stores its weight."""

import torch
from torch import nn

M = 1024 * 2
K = 4096 * 2
N = 2048 * 2


class Model(nn.Module):
    """A (M, K), B (N, K) -> (M, N)."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B.T)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(M, K), torch.rand(N, K)]


def get_init_inputs() -> list[object]:
    return []
