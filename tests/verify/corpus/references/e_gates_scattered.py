import torch
import torch.nn as nn


class Model(nn.Module):
    """Layers are grown in one by one, from the inside: most gates start at zero."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.tensor([0, 0, 0.5, 0, 1.0, 0, 0, 0, 0, 0]))
        self.shift = nn.Parameter(torch.randn(10))

    def forward(self, x):
        for i in range(10):
            x = x + self.gate[i] * torch.tanh(x + self.shift[i])
        return x


def get_inputs():
    return [torch.randn(256, 2048)]


def get_init_inputs():
    return []
