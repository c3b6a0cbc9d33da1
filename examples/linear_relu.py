"""y = relu(x @ W.T + bias): a Linear layer and its activation, with W and bias as parameters."""

import torch
from torch import nn

M = 1024 * 2
K = 4096 * 2
N = 2048 * 2


class Model(nn.Module):
    """x (M, K), weight (N, K), bias (N,) -> (M, N)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        bound = in_features**-0.5
        self.weight = nn.Parameter((2 * torch.rand(out_features, in_features) - 1) * bound)
        self.bias = nn.Parameter((2 * torch.rand(out_features) - 1) * bound)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ self.weight.T + self.bias)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(M, K)]


def get_init_inputs() -> list[object]:
    return [K, N]
