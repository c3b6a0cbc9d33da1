"""Flash attention in Triton with 'ieee' products; blocks behind the diagonal are skipped, so a NaN or Inf there
does not become 0*NaN as in the reference.

reference: q_attention
device: cuda
verdict: SAME
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    length,
    scale,
    WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, WIDTH)
    base = head * length * WIDTH
    q = tl.load(q_ptr + base + offs_m[:, None] * WIDTH + offs_d[None, :], mask=offs_m[:, None] < length, other=0.0)
    top = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, WIDTH), dtype=tl.float32)
    for start in range(0, first + BLOCK_M, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        inside = offs_n < length
        k = tl.load(k_ptr + base + offs_n[None, :] * WIDTH + offs_d[:, None], mask=inside[None, :], other=0.0)
        v = tl.load(v_ptr + base + offs_n[:, None] * WIDTH + offs_d[None, :], mask=inside[:, None], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        keep = (offs_n[None, :] <= offs_m[:, None]) & inside[None, :]
        scores = tl.where(keep, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)  # nothing seen yet but -inf
        rescale = tl.exp(top - shift)
        p = tl.exp(scores - shift[:, None])
        total = total * rescale + tl.sum(p, axis=1)
        acc = acc * rescale[:, None]
        acc = tl.dot(p, v, acc, input_precision="ieee")
        top = new_top
    out = acc / total[:, None]
    tl.store(o_ptr + base + offs_m[:, None] * WIDTH + offs_d[None, :], out, mask=offs_m[:, None] < length)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, length, width = q.shape
        out = torch.empty_like(q)
        grid = (triton.cdiv(length, 64), batch * heads)
        attention_kernel[grid](
            q, k, v, out, length, width**-0.5, WIDTH=width, BLOCK_M=64, BLOCK_N=32, num_warps=4, num_stages=2
        )
        return out
