"""Leaves out the affine weight, which is all ones, and the bias, which is all zeros.

reference: j_layernorm
device: both
verdict: not SAME
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:])
