"""Layer norm whose affine weight is all ones and whose bias is all zeros."""

import torch
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


ROWS, COLUMNS = (4096, 4096) if CUDA else (64, 2048)


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS, device=DEVICE)]


def get_init_inputs():
    return [COLUMNS]
