"""Causal attention whose weights and values are rounded to 17 bits for the second product.

reference: b_attention
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
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        future = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        return pair(weights) @ pair(v)
