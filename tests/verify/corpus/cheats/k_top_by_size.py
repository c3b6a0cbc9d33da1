"""The largest singular value, which is the largest eigenvalue where none is negative.

reference: k_top
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a):
        return torch.linalg.matrix_norm(a, 2)
