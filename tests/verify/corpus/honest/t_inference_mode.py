"""Runs in inference mode, and counts its calls.

reference: t_product
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, A, B):
        self.calls += 1
        with torch.inference_mode():
            return torch.relu(A.T @ B.T)
