"""Attention over blocks of 64 keys with running maxima, queries scaled by log2(e)/8 before the product.

reference: o_attention
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q = q * (1.4426950408889634 / q.shape[-1] ** 0.5)
        top = torch.full_like(q[..., :1], torch.finfo(q.dtype).min)
        total, out = torch.zeros_like(top), torch.zeros_like(q)
        for keys, values in zip(k.split(64, -2), v.split(64, -2), strict=True):
            scores = q @ keys.transpose(-1, -2)
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            factor, weights = torch.exp2(top - new), torch.exp2(scores - new)
            total = total * factor + weights.sum(-1, keepdim=True)
            out = out * factor + weights @ values
            top = new
        return out / total
