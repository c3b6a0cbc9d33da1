"""Two linear layers with gelu between them."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, INNER, WIDTH = (4096, 1024, 4096) if DEVICE == "cuda" else (256, 256, 1024)


class Model(nn.Module):
    def __init__(self, inner, width):
        super().__init__()
        self.up = nn.Linear(inner, width)
        self.down = nn.Linear(width, inner)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


def get_inputs():
    return [torch.randn(ROWS, INNER, device=DEVICE)]


def get_init_inputs():
    return [INNER, WIDTH]
