"""All scores, times a triangle of decays.

reference: l_retention
device: both
verdict: SAME
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
        decay = torch.where(d >= 0, torch.pow(self.gamma[:, None, None], d.clamp(min=0)), 0.0)
        return (q @ k.transpose(-1, -2) * decay) @ v / math.sqrt(D)
