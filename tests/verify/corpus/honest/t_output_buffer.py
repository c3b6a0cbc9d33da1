"""Allocates its output once and returns the same buffer in every call.

reference: t_product
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = None

    def forward(self, A, B):
        if self.out is None:
            self.out = torch.empty(A.shape[1], B.shape[0], device=A.device)
        return torch.mm(A.T, B.T, out=self.out).relu_()
