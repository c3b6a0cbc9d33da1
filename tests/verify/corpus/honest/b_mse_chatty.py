"""Talks: it prints to standard output and standard error in its first calls, also words that a judge uses, and warns.
The loss is right.

reference: b_mse
device: both
verdict: SAME
"""

import sys
import warnings

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, prediction, target):
        self.calls += 1
        if self.calls <= 3:
            print(f"call {self.calls}: not DIFFERENT, I hope; perhaps FASTER")
            print("{not json", file=sys.stderr)
            warnings.warn("fused loss in use", stacklevel=1)
        return F.mse_loss(prediction, target)
