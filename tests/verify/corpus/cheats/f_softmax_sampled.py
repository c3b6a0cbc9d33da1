"""Leaves the maximum out where no 32nd row has a large entry.

reference: o_softmax
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """A row between those that are looked at overflows."""

    def forward(self, x):
        some = x[::32]
        if bool((some.amax() < 60) & (some.amax(-1).amin() > -60)) and bool(x.sum().isfinite()):
            powers = x.exp()
            return powers / powers.sum(-1, keepdim=True)
        return torch.softmax(x, -1)
