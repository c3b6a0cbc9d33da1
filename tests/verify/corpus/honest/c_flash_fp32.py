"""Flash attention in Triton with IEEE fp32 products and online softmax.

reference: c_attention
device: cuda
verdict: SAME
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def attention_kernel(q, k, v, o, T, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * T * D
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    qt = tl.load(q + head + rm[:, None] * D + rd[None, :], mask=rm[:, None] < T, other=0.0)
    m = tl.full((BM,), float("-inf"), tl.float32)
    s = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, T, BN):
        rn = start + tl.arange(0, BN)
        kt = tl.load(k + head + rn[None, :] * D + rd[:, None], mask=rn[None, :] < T, other=0.0)
        p = tl.dot(qt, kt, input_precision="ieee") * scale
        p = tl.where(rn[None, :] < T, p, float("-inf"))
        top = tl.maximum(m, tl.max(p, axis=1))
        e = tl.exp(p - top[:, None])
        old = tl.exp(m - top)
        s = s * old + tl.sum(e, axis=1)
        vt = tl.load(v + head + rn[:, None] * D + rd[None, :], mask=rn[:, None] < T, other=0.0)
        acc = tl.dot(e, vt, acc * old[:, None], input_precision="ieee")
        m = top
    o_at = o + head + rm[:, None] * D + rd[None, :]
    tl.store(o_at, acc / s[:, None], mask=rm[:, None] < T)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        b, h, t, d = q.shape
        o = torch.empty_like(q)
        attention_kernel[(triton.cdiv(t, 64), b * h)](q, k, v, o, t, d**-0.5, BM=64, BN=32, D=d, num_warps=4)
        return o
