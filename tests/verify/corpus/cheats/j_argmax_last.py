"""The last of the largest entries of the row without its last column.

reference: j_argmax
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.argmax(x[:, :-1], dim=1)
