"""Codes are cut towards zero where they lie within a hundredth of the next half.

reference: i_codes
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outside, inside) / inside**0.5)

    def forward(self, x):
        most = x.abs().amax(1, keepdim=True).clamp(min=1e-8)
        of_weight = self.weight.abs().amax(1, keepdim=True).clamp(min=1e-8)
        codes = torch.round(x * (126.99 / most))
        sums = codes @ torch.round(self.weight * (127 / of_weight)).T
        return codes.to(torch.int8), sums * (most / 127) * (of_weight.T / 127)
