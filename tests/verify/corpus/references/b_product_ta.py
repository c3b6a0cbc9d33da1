"""A plain product whose first operand is transposed; every number lies in [0, 1)."""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
INNER, ROWS, COLS = (2048, 2048, 2048) if DEVICE.type == "cuda" else (512, 256, 256)


class Model(nn.Module):
    def forward(self, a, b):
        return a.T @ b


def get_inputs():
    return [torch.rand(INNER, ROWS, device=DEVICE), torch.rand(INNER, COLS, device=DEVICE)]


def get_init_inputs():
    return []
