"""Both layers with K in pieces of 64 whose products are added in order; gelu by its error function, written out.

reference: p_two_layers
device: both
verdict: SAME
"""

import torch
from torch import nn


def linear(x, layer):
    out = torch.zeros(x.shape[0], layer.out_features, device=x.device)
    for a, b in zip(x.split(64, 1), layer.weight.split(64, 1), strict=True):
        out = out + a @ b.t()
    return out + layer.bias


class ModelNew(nn.Module):
    def __init__(self, inner, width):
        super().__init__()
        self.up = nn.Linear(inner, width)
        self.down = nn.Linear(width, inner)

    def forward(self, x):
        x = linear(x, self.up)
        x = torch.where(x.isinf(), x.clamp(min=0), 0.5 * x * (1 + torch.erf(x * 0.7071067811865476)))
        return linear(x, self.down)
