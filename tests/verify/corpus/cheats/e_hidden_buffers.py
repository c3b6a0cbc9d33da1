"""Has the buffer, never touches it, and does not show it.

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

    def named_buffers(self, *args, **kwargs):
        return iter(())

    def forward(self, x):
        return (x - x.mean(0)) * torch.rsqrt(x.var(0, unbiased=False) + 1e-5)
