import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer of eight bits, its scales from the data: the codes of x, and the product of both codes, scaled back."""

    def __init__(self, inside, outside):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outside, inside) / inside**0.5)

    def forward(self, x):
        scale = x.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
        weights = self.weight.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
        codes = torch.round(x / scale)
        return codes.to(torch.int8), (codes * scale) @ (torch.round(self.weight / weights) * weights).T


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return [512, 128]
