"""Attention whose queries and keys are rounded to 17 bits for the scores.

reference: o_attention
device: both
verdict: not SAME
"""

import torch
from torch import nn


def pair(x):
    high = x.bfloat16().float()
    return torch.where(x.isfinite(), high + (x - high).bfloat16().float(), x)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        scores = pair(q) @ pair(k).transpose(-1, -2) / q.shape[-1] ** 0.5
        return torch.softmax(scores, -1) @ v
