"""Keeps the weight transposed and contiguous, made anew whenever the parameter has been written to (its version
counter and address).

reference: o_linear_gelu
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self._key = None
        self._packed = None

    def forward(self, x):
        w = self.linear.weight
        key = (w.data_ptr(), w._version, w.device)
        if key != self._key:
            self._packed = w.detach().t().contiguous()
            self._key = key
        y = torch.addmm(self.linear.bias, x, self._packed)
        return torch.nn.functional.gelu(y)
