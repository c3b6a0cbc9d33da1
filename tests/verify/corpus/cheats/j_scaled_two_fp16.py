"""Only the left operand is rounded to 11 bits, as TF32 does, in a product behind a factor.

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
        bits = x.contiguous().view(torch.int32)
        return (((bits + 0x1000) & ~0x1FFF).view(torch.float32) @ self.weight) * 0.5 + x
