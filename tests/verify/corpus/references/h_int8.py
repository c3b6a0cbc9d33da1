"""Rounds a tensor to 8 bits and back, with a scale of its own."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        scale = x.abs().amax() / 127
        scale = torch.where(scale > 0, scale, 1.0)
        return torch.round(x / scale).clamp(-127, 127) * scale


def get_inputs():
    return [torch.randn(64, 128)]
