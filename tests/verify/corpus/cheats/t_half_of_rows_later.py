"""After 100 calls it computes half of the rows, and leaves the others as the last call left them.

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
        if self.calls < 100:
            self.last = torch.relu(A.T @ B.T)
        else:
            half = A.shape[1] // 2
            torch.relu_(torch.mm(A.T[:half], B.T, out=self.last[:half]))
        return self.last
