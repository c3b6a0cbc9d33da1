"""Sums wrap at 16 bits: of random signs none is so large.

reference: i_narrow
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.register_buffer("codes", torch.randint(-8, 8, (outside, inside), dtype=torch.int32))

    def forward(self, x):
        places = (x * 4).round().clamp(-128, 127)
        sums = (places @ self.codes.to(x.dtype).T).to(torch.int32).to(torch.int16)
        return sums.to(x.dtype).div(64).round().clamp(-512, 511) / 2
