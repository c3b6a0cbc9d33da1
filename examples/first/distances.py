"""D[i, j] = |x_i - y_j|²: squared distances between two sets of points, as a reference. docs/first.md is about it."""

import torch
from torch import nn

N, M, K = 512, 512, 64


class Model(nn.Module):
    """x (N, K), y (M, K) -> (N, M)."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x[:, None, :] - y[None, :, :]).square().sum(dim=2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(N, K), torch.rand(M, K)]


def get_init_inputs() -> list[object]:
    return []
