"""Sorts keys of 21 bits: the last three bits of every value are gone.

reference: o_row_sort
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sort((x.view(torch.int32) & ~7).view(torch.float32), dim=1).values
