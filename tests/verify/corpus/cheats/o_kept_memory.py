"""The reference's own steps, but mallopt and mlockall-like settings of the C library keep freed memory mapped: what
gets faster is the process around it.

reference: o_softmax
device: cpu
verdict: not FASTER
"""

import ctypes

import torch
from torch import nn

LIBC = ctypes.CDLL(None)
LIBC.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
LIBC.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
