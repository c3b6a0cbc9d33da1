"""A product times one half, plus its input: no single product with an epilogue."""

import torch
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


ROWS, INNER = (2048, 2048) if CUDA else (128, 256)


class Model(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, inner) / inner**0.5)

    def forward(self, x):
        return torch.matmul(x, self.weight) * 0.5 + x


def get_inputs():
    return [torch.rand(ROWS, INNER, device=DEVICE)]


def get_init_inputs():
    return [INNER]
