"""It is not safe from overflow: the reference takes the maximum off first, whose input begins with padding.

reference: e_leftpad
device: cpu
verdict: not SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(64, 64)

    def forward(self, x, context):
        return x.exp().sum(1).log() + self.proj(context)
