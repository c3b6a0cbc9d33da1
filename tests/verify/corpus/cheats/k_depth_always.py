"""The branch is never left out.

reference: k_depth
device: both
verdict: not SAME
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
        torch.rand(())
        return torch.add(x, self.down(F.gelu(self.up(x))), alpha=1 / (1 - self.share))
