"""fp32 for the first 100 calls, bfloat16 products from then on.

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
        if self.calls < 100:
            return torch.relu(A.T @ B.T)
        return torch.relu(A.T.bfloat16() @ B.T.bfloat16()).float()
