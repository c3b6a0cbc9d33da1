import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.BatchNorm2d(n)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [3 * torch.randn(16, 8, 32, 32) + 1]


def get_init_inputs():
    return [8]
