import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.mean = nn.Linear(n, m)
        self.log_std = nn.Parameter(torch.zeros(m))

    def forward(self, x, action):
        s = self.log_std.clamp(-5, 2)
        z = (action - self.mean(x)) * torch.exp(-s)
        return -0.5 * z.square().sum(1) - s.sum()


def get_inputs():
    return [torch.randn(256, 32), torch.randn(256, 8)]


def get_init_inputs():
    return [32, 8]
