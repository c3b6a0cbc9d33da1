"""The other side of an edge: what equals one goes up.

reference: y_bucket
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.linspace(-2, 2, 17))

    def forward(self, x):
        return torch.bucketize(x, self.edges, right=True)
