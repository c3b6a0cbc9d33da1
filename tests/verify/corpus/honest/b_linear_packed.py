"""Keeps a transposed copy of the weight between calls, and makes a new one whenever the parameter's version, address or
device has changed: a kept copy that is never stale.

reference: b_linear_relu
device: both
verdict: SAME
"""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, inner, cols):
        super().__init__()
        self.linear = nn.Linear(inner, cols, device=DEVICE)
        self.packed = self.key = None

    @torch.no_grad()
    def forward(self, x):
        weight = self.linear.weight
        key = (weight._version, weight.data_ptr(), weight.device)
        if key != self.key:
            self.packed, self.key = weight.T.contiguous(), key
        return torch.addmm(self.linear.bias, x, self.packed).relu_()
