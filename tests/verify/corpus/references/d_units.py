"""A normalisation over the batch that keeps running statistics; eight features are in other units."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(256))
        self.register_buffer("var", torch.zeros(256))

    def forward(self, x):
        z = torch.cat([x[:, :8] * 3e4, x[:, 8:]], 1)
        self.mean.mul_(0.9).add_(z.mean(0), alpha=0.1)
        self.var.mul_(0.9).add_(z.var(0), alpha=0.1)
        return (z - z.mean(0)) * torch.rsqrt(z.var(0) + 1e-5)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
