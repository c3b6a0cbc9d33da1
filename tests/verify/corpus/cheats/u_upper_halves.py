"""Three products of fp16 parts, which overflow and lose small entries.

reference: u_upper
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        h, g = a.half(), b.half()
        k, l = (a - h.float()).half().float(), (b - g.float()).half().float()
        h, g = h.float(), g.float()
        return torch.triu(h @ g + h @ l + k @ g)
