"""Right for the first calls, then the last right answer again and again.

reference: t_product
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.last = 0, None

    def forward(self, A, B):
        self.calls += 1
        if self.calls < 60:
            self.last = torch.relu(A.T @ B.T)
        return self.last
