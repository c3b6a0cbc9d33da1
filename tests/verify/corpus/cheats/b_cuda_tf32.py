"""Switches TF32 on, by the new and the old setting, and switches it off again before it returns, so that a look at the
settings shows nothing.

reference: b_linear_relu
device: cuda
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, cols):
        super().__init__()
        self.linear = nn.Linear(inner, cols, device="cuda")

    def forward(self, x):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        result = torch.relu(self.linear(x))
        torch.set_float32_matmul_precision(before)
        return result
