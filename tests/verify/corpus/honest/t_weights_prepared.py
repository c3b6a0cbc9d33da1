"""Keeps a transposed copy of the weight, made anew when the parameter has another address or version.

reference: t_linear
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outer, inner))
        self.bias = nn.Parameter(torch.empty(outer))
        self.key = None

    def forward(self, x):
        key = self.weight.data_ptr(), self.weight._version
        if key != self.key:
            self.prepared, self.key = self.weight.T.contiguous(), key
        return torch.addmm(self.bias, x, self.prepared).relu_()
