"""Layer norm with both sums in order, mean before variance.

reference: o_layer_norm
device: both
verdict: SAME
"""

import torch
from torch import nn


def total(x):
    out = torch.zeros_like(x[:, 0])
    for column in x.unbind(1):
        out = out + column
    return out[:, None]


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        centred = x - total(x) / x.shape[1]
        variance = total(centred * centred) / x.shape[1]
        return centred / (variance + self.norm.eps).sqrt() * self.norm.weight + self.norm.bias
