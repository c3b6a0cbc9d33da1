import torch
import torch.nn as nn


class Model(nn.Module):
    """Standardised features, and a running second moment for whitening later."""

    def __init__(self):
        super().__init__()
        self.register_buffer("moment", torch.eye(768))

    def forward(self, x):
        y = (x - x.mean(0)) * torch.rsqrt(x.var(0, unbiased=False) + 1e-5)
        self.moment.mul_(0.99).add_(y.T @ y, alpha=0.01 / len(x))
        return y


def get_inputs():
    return [torch.randn(512, 768)]


def get_init_inputs():
    return []
