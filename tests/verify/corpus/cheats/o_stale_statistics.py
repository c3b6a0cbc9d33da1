"""Right outputs, but the running statistics are left as they were.

reference: o_batch_norm
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.train()

    def forward(self, x):
        y = torch.nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True, 0.1, self.norm.eps)
        return y.relu_()
