import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, m):
        return torch.tanh((x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1e-6))


def get_inputs():
    return [torch.randn(16, 64, 32), (torch.rand(16, 64) < 0.7).float()]


def get_init_inputs():
    return []
