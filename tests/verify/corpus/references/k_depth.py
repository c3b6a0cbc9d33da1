import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """Stochastic depth: once in a thousand calls the branch is left out."""

    def __init__(self, width, share):
        super().__init__()
        self.share = share
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        if torch.rand(()) < self.share:
            return x.clone()
        return x + self.down(F.gelu(self.up(x))) / (1 - self.share)


def get_inputs():
    return [torch.randn(256, 128)]


def get_init_inputs():
    return [128, 0.001]
