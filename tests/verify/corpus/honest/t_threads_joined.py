"""Has two threads compute half of the rows each, and waits for both.

reference: t_product
device: both
verdict: SAME
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(2)

    def forward(self, A, B):
        out = torch.empty(A.shape[1], B.shape[0], device=A.device)
        half = out.shape[0] // 2

        def rows(begin, end):
            with torch.no_grad():
                out[begin:end] = torch.relu(A.T[begin:end] @ B.T)

        work = [self.pool.submit(rows, 0, half), self.pool.submit(rows, half, out.shape[0])]
        for one in work:
            one.result()
        return out
