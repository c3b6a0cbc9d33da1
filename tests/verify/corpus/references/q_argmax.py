import torch
import torch.nn as nn


class Model(nn.Module):
    """The best code of every row, and how often each code was chosen."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        codes = torch.argmax(x, dim=1)
        return codes, torch.bincount(codes, minlength=x.shape[1])


rows = 65536
classes = 512


def get_inputs():
    return [torch.randn(rows, classes)]


def get_init_inputs():
    return []
