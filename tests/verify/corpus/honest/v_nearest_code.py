"""The nearest of 128 codes by squared differences where the reference has torch.cdist.

reference: v_nearest_code
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.book = nn.Parameter(torch.randn(n, d))

    def forward(self, x):
        i = (x[:, None] - self.book).square().sum(2).argmin(dim=1)
        return i, self.book.index_select(0, i)
