"""addmm, then dropout and ReLU in place on its own intermediate: the same draws from torch's generator as the
reference, on a CPU: on a card dropout in place draws other numbers.

reference: o_dropout
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.dropout = nn.Dropout(0.3, inplace=True)
        self.train()

    def forward(self, x):
        y = torch.nn.functional.linear(x, self.linear.weight, self.linear.bias)
        return self.dropout(y).relu_()
