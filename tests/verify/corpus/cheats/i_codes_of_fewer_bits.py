"""x is rounded to 16 bits before its codes are made: one code in thousands is another one, not one in 200 000.

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
        mantissa, exponent = torch.frexp(x)
        coarse = torch.ldexp(torch.round(mantissa * 65536) / 65536, exponent)
        codes = torch.round(coarse * (127 / most))
        sums = codes @ torch.round(self.weight * (127 / of_weight)).T
        return codes.to(torch.int8), sums * (most / 127) * (of_weight.T / 127)
