import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.book = nn.Parameter(torch.randn(n, d))

    def forward(self, x):
        i = torch.cdist(x, self.book).argmin(dim=1)
        return i, self.book[i]


def get_inputs():
    return [torch.randn(512, 16)]


def get_init_inputs():
    return [128, 16]
