import torch
import torch.nn as nn


class Model(nn.Module):
    """log-determinant and solution for a covariance"""

    def forward(self, A, b):
        L = torch.linalg.cholesky(A)
        return 2 * L.diagonal().log().sum(), torch.cholesky_solve(b, L)


def get_inputs():
    x = torch.randn(96, 400)
    return [x @ x.t() / 400 + 0.1 * torch.eye(96), torch.randn(96, 8)]


def get_init_inputs():
    return []
