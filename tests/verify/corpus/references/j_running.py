"""An exponential mean in a buffer: the output depends on what earlier calls left there."""

import torch
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


ROWS, COLUMNS = (2048, 2048) if CUDA else (128, 256)


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))

    def forward(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return x - self.mean


def get_inputs():
    return [torch.rand(ROWS, COLUMNS, device=DEVICE)]


def get_init_inputs():
    return [COLUMNS]
