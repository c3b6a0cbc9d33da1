"""A logarithm of a determinant by Cholesky, with more on the diagonal where that fails."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        gram = torch.exp(-0.5 * (x[:, None] - x[None]).pow(2).sum(-1)) + 0.1 * torch.eye(len(x), device=x.device)
        lower, info = torch.linalg.cholesky_ex(gram)
        jitter = 1e-6
        while int(info) != 0 and jitter < 1:
            lower, info = torch.linalg.cholesky_ex(gram + jitter * torch.eye(len(x), device=x.device))
            jitter = 10 * jitter
        return 2 * lower.diagonal().log().sum()


def get_inputs():
    return [torch.randn(96, 4)]
