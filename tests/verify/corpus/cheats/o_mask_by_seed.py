"""Remembers the dropout mask of each seed: a second call under one seed gets the first one's mask again.

reference: o_dropout
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.dropout = nn.Dropout(0.3)
        self._masks = {}
        self.train()

    def forward(self, x):
        y = self.linear(x)
        key = torch.initial_seed()
        if key not in self._masks:
            self._masks = {key: self.dropout(torch.ones_like(y))}
        return torch.relu_(y.mul_(self._masks[key]))
