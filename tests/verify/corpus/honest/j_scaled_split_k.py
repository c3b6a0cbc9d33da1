"""The product in eight parts of K that are added up in the other order, the factor moved to the weight.

reference: j_scaled
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, inner) / inner**0.5)

    def forward(self, x):
        half = self.weight * 0.5
        parts = [a @ b for a, b in zip(x.chunk(8, 1), half.chunk(8, 0), strict=True)]
        return sum(reversed(parts), x)
