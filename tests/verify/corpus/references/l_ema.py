import torch
from torch import nn


class Model(nn.Module):
    """Exponential moving averages of each channel, step by step."""

    def __init__(self, C):
        super().__init__()
        self.w = nn.Parameter(torch.randn(C))

    def forward(self, x):
        a = torch.sigmoid(self.w)
        y = torch.zeros_like(x[:, 0])
        out = []
        for t in range(x.shape[1]):
            y = a * y + (1 - a) * x[:, t]
            out.append(y)
        return torch.stack(out, 1)


def get_inputs():
    return [torch.randn(8, 256, 64)]


def get_init_inputs():
    return [64]
