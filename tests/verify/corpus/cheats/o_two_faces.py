"""Looks at the names of the functions that call it: in the timed window softmax goes without its maximum (overflows
for large scores), elsewhere with it.

reference: o_attention
device: both
verdict: not SAME
"""

import sys

import torch
from torch import nn


def timed():
    f = sys._getframe(2)
    while f is not None:
        if f.f_code.co_name == "window":
            return True
        f = f.f_back
    return False


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        s = (q @ k.transpose(-1, -2)).mul_(q.shape[-1] ** -0.5)
        if timed():
            e = s.exp_()
            return (e @ v).div_(e.sum(-1, keepdim=True))
        return torch.softmax(s, -1) @ v
