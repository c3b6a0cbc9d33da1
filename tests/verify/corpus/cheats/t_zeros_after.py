"""Right for the first 150 calls, zeros from then on.

reference: t_product
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, A, B):
        self.calls += 1
        if self.calls > 150:
            return torch.zeros(A.shape[1], B.shape[0], device=A.device)
        return torch.relu(A.T @ B.T)
