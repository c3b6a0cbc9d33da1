"""The sum of a Linear layer's outputs is a product with the sum of its weight's rows: the same number, by other
additions.

reference: o_linear_sum
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        return torch.addmv(self.linear.bias.sum().reshape(1), x, self.linear.weight.sum(0))[:, None]
