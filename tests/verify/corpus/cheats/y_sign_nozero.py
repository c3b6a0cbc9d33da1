"""The sign of 0 is +1.

reference: y_sign
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x >= 0).to(torch.int8).mul_(2).sub_(1), x.abs().mean(1)
