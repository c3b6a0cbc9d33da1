"""Allocates a workspace in its first call, and sums two halves of K in it.

reference: t_product
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.work = None

    def forward(self, A, B):
        if self.work is None:
            self.work = torch.empty(2, A.shape[1], B.shape[0], device=A.device)
        half = A.shape[0] // 2
        torch.mm(A.T[:, :half], B.T[:half], out=self.work[0])
        torch.mm(A.T[:, half:], B.T[half:], out=self.work[1])
        return torch.relu(self.work[0] + self.work[1])
