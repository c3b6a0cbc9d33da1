"""The decays of the fastest head reach 96 steps back, and so do all.

reference: l_retention
device: both
verdict: not SAME
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, H):
        super().__init__()
        self.register_buffer("gamma", 1 - torch.exp2(-5 - torch.arange(H).float()))

    def forward(self, q, k, v):
        T, D = q.shape[2:]
        i = torch.arange(T, device=q.device)
        d = i[:, None] - i
        decay = torch.where((d >= 0) & (d < 96), torch.pow(self.gamma[:, None, None], d.clamp(min=0)), 0.0)
        return (q @ k.transpose(-1, -2) * decay) @ v / math.sqrt(D)
