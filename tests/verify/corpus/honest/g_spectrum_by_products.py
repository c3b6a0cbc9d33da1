"""Two real products: what is NaN or infinite has a NaN in its imaginary part too.

reference: g_spectrum
device: cpu
verdict: SAME
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.shape[-1]
        angle = -2 * math.pi / n * (torch.arange(n)[:, None] * torch.arange(n // 2 + 1) % n).double()
        return torch.complex(x @ angle.cos().float(), x @ angle.sin().float())
