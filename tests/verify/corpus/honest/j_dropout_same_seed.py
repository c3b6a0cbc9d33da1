"""Dropout that draws as torch does; the parameters have names of their own.

reference: j_dropout
device: both
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer, p):
        super().__init__()
        self.dense = nn.Linear(inner, outer)
        self.p = p

    def forward(self, x):
        y = F.dropout(F.linear(x, self.dense.weight, self.dense.bias), self.p, training=True)
        e = torch.exp(y - y.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True)
