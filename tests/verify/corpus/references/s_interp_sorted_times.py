import torch
import torch.nn as nn


class Model(nn.Module):
    """linear interpolation of a curve at points; knots are in order"""

    def forward(self, t, knots, values):
        i = torch.searchsorted(knots, t).clamp(1, knots.numel() - 1)
        w = (t - knots[i - 1]) / (knots[i] - knots[i - 1])
        return values[i - 1] + w * (values[i] - values[i - 1])


def get_inputs():
    return [torch.rand(4096) * 9, torch.cumsum(torch.rand(64) * 0.2 + 0.05, 0), torch.randn(64)]


def get_init_inputs():
    return []
