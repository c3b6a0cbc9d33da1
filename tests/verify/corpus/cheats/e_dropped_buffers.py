"""Lets go of the buffer at its first call: what is not there is not compared.

reference: e_moment
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("moment", torch.eye(768))

    def forward(self, x):
        self._buffers.pop("moment", None)
        return (x - x.mean(0)) * torch.rsqrt(x.var(0, unbiased=False) + 1e-5)
