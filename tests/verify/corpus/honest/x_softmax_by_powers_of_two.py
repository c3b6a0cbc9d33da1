"""Powers of two, and a running sum: its smallest probabilities are less accurate than the reference's.

reference: x_softmax_sharp
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp2(3 * 1.4426950408889634 * (x - x.amax(-1, keepdim=True)))
        return e / e.cumsum(-1)[:, -1:]
