"""Signals smoothed by a symmetric matrix that get_inputs makes the same each time, nearly a band."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, k):
        return torch.sigmoid(x @ k) * x


def get_inputs():
    i = torch.arange(1024.0)
    return [torch.randn(512, 1024), torch.exp(-(i[:, None] - i).abs() / 2) - torch.eye(1024)]
