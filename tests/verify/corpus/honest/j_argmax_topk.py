"""The place of the largest entry by a maximum with its index.

reference: j_argmax
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.max(x, dim=1).indices
