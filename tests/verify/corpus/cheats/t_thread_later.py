"""Returns a buffer that a thread fills a little later, as soon as calls are not looked at one by one.

reference: t_product
device: both
verdict: not SAME
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.buffers, self.pool = 0, [None] * 4, ThreadPoolExecutor(1)

    def forward(self, A, B):
        self.calls += 1
        if self.calls < 40:
            return torch.relu(A.T @ B.T)
        out = self.buffers[self.calls % 4]
        if out is None:
            out = self.buffers[self.calls % 4] = torch.empty(A.shape[1], B.shape[0], device=A.device)
        self.pool.submit(lambda: out.copy_(torch.relu(A.T @ B.T)))
        return out
