"""Leaves work out, and may: in every call it looks whether the bias is all zeros, and adds it unless it is. Right for
every bias, also one that is changed later.

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

    @torch.no_grad()
    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        if bias.any():
            return torch.addmm(bias, x, weight.T).relu_()
        return torch.mm(x, weight.T).relu_()
