"""Finds the maxima first and their places afterwards: the first place wins where there are several, as in the reference
on most machines.

reference: b_row_max
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        values = x.amax(dim=1)
        places = (x == values[:, None]).to(torch.uint8).argmax(dim=1)
        return values, places
