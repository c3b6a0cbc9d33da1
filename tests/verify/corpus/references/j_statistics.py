"""A dict of several outputs: floats, integers, booleans, None."""

import torch
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


ROWS, COLUMNS = (4096, 4096) if CUDA else (128, 512)


class Model(nn.Module):
    def forward(self, x):
        values, places = torch.max(x, dim=1)
        return {"mean": x.mean(1), "max": (values, places), "above": x.sum(1) > COLUMNS / 2, "rest": None}


def get_inputs():
    return [torch.rand(ROWS, COLUMNS, device=DEVICE)]


def get_init_inputs():
    return []
