"""Layers whose gate is zero are left out.

reference: e_gates_scattered
device: cpu
verdict: not SAME
passes: mostly, zeros beside other numbers in a parameter stay zeros in all that is tried
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.tensor([0, 0, 0.5, 0, 1.0, 0, 0, 0, 0, 0]))
        self.shift = nn.Parameter(torch.randn(10))

    def forward(self, x):
        for i in (2, 4):
            x = x + self.gate[i] * torch.tanh(x + self.shift[i])
        return x
