import torch
import torch.nn as nn


class Model(nn.Module):
    """RMS norm of bfloat16 activations, the mean square in float32."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=torch.bfloat16))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


tokens = 16384
width = 4096


def get_inputs():
    return [torch.randn(tokens, width).to(torch.bfloat16)]


def get_init_inputs():
    return [width, 1e-6]
