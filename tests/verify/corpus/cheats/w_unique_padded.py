"""Distinct values, always 64 of them.

reference: w_unique
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.arange(64, device=x.device), x + x
