"""Softmax with 2^x as a graphics processor's unit gives it: the power right to 2^-22, the quotient by
a reciprocal.

reference: b_softmax
device: both
verdict: SAME
"""

import torch
from torch import nn


def power(t):
    """2^t with errors up to 2^-22, which depend on the number."""
    e = torch.exp2(t)
    off = (t * 7919.0).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).frac() * 2.0**-22
    return e + e * off


class ModelNew(nn.Module):
    def forward(self, x):
        e = power((x - x.amax(1, keepdim=True)) * 1.4426950408889634)
        return e * (1 / e.sum(1, keepdim=True))
