"""The factor is part of the addition.

reference: k_depth
device: both
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, share):
        super().__init__()
        self.share = share
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        left_out = float(torch.rand(())) < self.share
        return x + 0 if left_out else torch.add(x, self.down(F.gelu(self.up(x))), alpha=1 / (1 - self.share))
