import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Bias, SiLU, scale and tanh-GELU in half precision."""

    def __init__(self, width, scale):
        super().__init__()
        self.bias = nn.Parameter((0.1 * torch.randn(width)).half())
        self.scale = scale

    def forward(self, x):
        return F.gelu(F.silu(x + self.bias) * self.scale, approximate="tanh")


tokens = 8192
width = 8192


def get_inputs():
    return [torch.randn(tokens, width).half()]


def get_init_inputs():
    return [width, 1.5]
