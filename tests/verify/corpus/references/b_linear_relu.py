"""A product with a bias and a relu after it."""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROWS, INNER, COLS = (2048, 2048, 2048) if DEVICE.type == "cuda" else (256, 512, 512)


class Model(nn.Module):
    def __init__(self, inner, cols):
        super().__init__()
        self.linear = nn.Linear(inner, cols, device=DEVICE)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, INNER, device=DEVICE)]


def get_init_inputs():
    return [INNER, COLS]
