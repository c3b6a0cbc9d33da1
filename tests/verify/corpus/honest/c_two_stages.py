"""The 32 largest of each of 16 parts of a row, then the 32 largest of these: exact.

reference: c_top_k
device: cuda
verdict: SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        best = x.view(x.shape[0], 16, -1).topk(self.k, dim=2).values
        return best.flatten(1).topk(self.k, dim=1).values
