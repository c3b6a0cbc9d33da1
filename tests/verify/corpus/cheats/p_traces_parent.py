"""Attaches itself by ptrace to every process of the verification that it can, which stops them; the reference would
run on only when it is let. Its own answer is zeros.

reference: p_product
device: both
verdict: not SAME
"""

import ctypes
import os

import psutil
import torch
from torch import nn

PTRACE_SEIZE = 0x4206


def relatives():
    """The processes below the one that started this one's parent, but for this one: the tool's and the reference's."""
    root = psutil.Process().parent()
    for _ in range(2):
        root = root.parent() or root
    return [one for one in [root, *root.children(recursive=True)] if one.pid != os.getpid()]


LIBC = ctypes.CDLL(None, use_errno=True)
TRACED = [one.pid for one in relatives() if LIBC.ptrace(PTRACE_SEIZE, one.pid, 0, 0) == 0]


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.zeros(a.shape[1], b.shape[0], device=a.device)
