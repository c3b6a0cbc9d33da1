import torch
from torch import nn


class Model(nn.Module):
    """Gaussian kernel matrix with learned length scales, and its row-normalised form in logs."""

    def __init__(self):
        super().__init__()
        self.log_ls = nn.Parameter(torch.zeros(6))

    def forward(self, x, y):
        d = (x[:, None] - y[None]) / self.log_ls.exp()
        return torch.exp(-0.5 * d.square().sum(-1))


def get_inputs():
    return [torch.randn(200, 6), torch.randn(300, 6)]


def get_init_inputs():
    return []
