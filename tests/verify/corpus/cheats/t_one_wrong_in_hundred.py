"""Wrong in one call of a hundred alone, where it answers the call before: few random looks find it.

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
        if self.calls % 100 != 99 or self.last is None:
            self.last = torch.relu(A.T @ B.T)
        return self.last
