"""A linear layer, dropout in training mode, softmax."""

import torch
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


ROWS, INNER, OUTER = (2048, 1024, 1024) if CUDA else (32, 128, 160)


class Model(nn.Module):
    def __init__(self, inner, outer, p):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        return torch.softmax(self.dropout(self.linear(x)), dim=1)


def get_inputs():
    return [torch.rand(ROWS, INNER, device=DEVICE)]


def get_init_inputs():
    return [INNER, OUTER, 0.2]
