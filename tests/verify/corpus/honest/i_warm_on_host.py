"""The rate is a number of Python's.

reference: i_warm
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, p, g, step):
        at = int(step)
        rate = (at + 1) / 4000 if at <= 4000 else 0.1 ** ((at - 4000) // 30000) / 3
        return torch.add(p, g, alpha=-0.02 * rate)
