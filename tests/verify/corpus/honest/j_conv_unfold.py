"""The convolution as a product of unfolded patches.

reference: j_conv
device: both
verdict: SAME
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3)

    def forward(self, x):
        patches = F.unfold(x, 3)
        out = self.conv.weight.flatten(1) @ patches + self.conv.bias[:, None]
        return out.reshape(x.shape[0], -1, x.shape[2] - 2, x.shape[3] - 2)
