"""The product in fp16, behind a factor of one half and a sum.

reference: j_scaled
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, inner) / inner**0.5)

    def forward(self, x):
        return (x.half().float() @ self.weight.half().float()) * 0.5 + x
