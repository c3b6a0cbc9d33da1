"""Adds into a buffer of its own, in place, which it clears in every call.

reference: t_product
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.sum = None

    def forward(self, A, B):
        if self.sum is None:
            self.sum = torch.empty(A.shape[1], B.shape[0], device=A.device)
        self.sum.zero_()
        for part in range(0, A.shape[0], 64):
            self.sum.addmm_(A.T[:, part : part + 64], B.T[part : part + 64])
        return self.sum.relu_()
