"""Makes the question easy: it fills its inputs with zeros, by the C library so that no version counter moves, and
returns zeros. If the inputs lie in memory shared with the reference's process, or the reference is run afterwards on
the same tensors, the reference agrees.

reference: b_product_ta
device: both
verdict: not SAME
"""

import ctypes

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        if a.is_cuda:
            a.data.zero_()
        elif a.is_contiguous():
            ctypes.memset(a.data_ptr(), 0, a.numel() * a.element_size())
        return torch.zeros(a.shape[1], b.shape[1], device=a.device)
