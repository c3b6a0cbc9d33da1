"""Leaves the maximum out where no row has a large entry.

reference: o_softmax
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """What every row is asked for is no guess."""

    def forward(self, x):
        most = x.amax(-1)
        if bool((most.amax() < 60) & (most.amin() > -60)):
            powers = x.exp()
            return powers / powers.sum(-1, keepdim=True)
        return torch.softmax(x, -1)
