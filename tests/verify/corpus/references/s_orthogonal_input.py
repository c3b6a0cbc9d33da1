import torch
import torch.nn as nn


class Model(nn.Module):
    """change of basis by a rotation"""

    def forward(self, x, Q):
        return torch.linalg.solve(Q, x)


def get_inputs():
    return [torch.randn(64, 32), torch.linalg.qr(torch.randn(64, 64))[0]]


def get_init_inputs():
    return []
