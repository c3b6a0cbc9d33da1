"""Attention over blocks of 128 keys: a running maximum and a running sum, as flash attention does it, in fp32.

reference: o_attention
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        scale = q.shape[-1] ** -0.5
        top = torch.full((*q.shape[:-1], 1), float("-inf"), device=q.device)
        total = torch.zeros_like(top)
        out = torch.zeros(*q.shape[:-1], v.shape[-1], device=q.device)
        for start in range(0, k.shape[-2], 128):
            s = torch.matmul(q, k[..., start : start + 128, :].transpose(-1, -2)).mul_(scale)
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            p = s.sub_(new).exp_()
            shrink = (top - new).exp_()
            total.mul_(shrink).add_(p.sum(-1, keepdim=True))
            out.mul_(shrink).add_(p @ v[..., start : start + 128, :])
            top = new
        return out / total
