"""The weight rounded to 4 bits, as fp8 has, in a bfloat16 model.

reference: j_bf16
device: both
verdict: not SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer).bfloat16()

    def forward(self, x):
        mantissa, exponent = torch.frexp(self.linear.weight.float())
        weight = torch.ldexp(torch.round(mantissa * 16) / 16, exponent).bfloat16()
        return F.gelu(F.linear(x, weight, self.linear.bias))
