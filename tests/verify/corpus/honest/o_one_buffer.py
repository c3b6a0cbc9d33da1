"""Returns the same memory at each call: an earlier output is overwritten by a later call.

reference: o_layer_norm
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self._out = None

    def forward(self, x):
        if self._out is None or self._out.shape != x.shape:
            self._out = torch.empty_like(x)
        self._out.copy_(self.norm(x))
        return self._out
