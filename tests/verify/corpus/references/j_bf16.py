"""A linear layer and GELU in bfloat16."""

import torch
import torch.nn.functional as F
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


ROWS, INNER, OUTER = (4096, 1024, 1024) if CUDA else (64, 128, 160)


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer).bfloat16()

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, INNER, device=DEVICE).bfloat16()]


def get_init_inputs():
    return [INNER, OUTER]
