"""Attention whose exponents are one fused multiply-add of the raw scores, and whose operands have 22 bits, two fp16 halves
each, in three products.

reference: o_attention
device: both
verdict: SAME
"""

import torch
from torch import nn


def product(a, b):
    def halves(x):
        scale = torch.exp2(torch.floor(torch.log2(x.abs().amax().clamp(min=1e-30))) - 3)
        high = (x / scale).half().float()
        return high, ((x / scale - high) * 2048).half().float() / 2048, scale

    if not bool(a.isfinite().all() & b.isfinite().all()):
        return a @ b
    (ah, al, s), (bh, bl, t) = halves(a), halves(b)
    return (ah @ bh + (ah @ bl + al @ bh)) * (s * t)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        factor = torch.tensor(1.4426950408889634 / q.shape[-1] ** 0.5, device=q.device).double()
        scores = product(q, k.transpose(-1, -2))
        shift = (scores.amax(-1, keepdim=True) * factor.float()).double()
        e = torch.exp2((scores.double() * factor - shift).float())
        return product(e, v) / e.sum(-1, keepdim=True)
