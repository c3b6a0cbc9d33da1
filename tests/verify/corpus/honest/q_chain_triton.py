"""A fused Triton elementwise kernel in fp32 registers, tanh-GELU as v * sigmoid(2u).

reference: q_chain
device: cuda
verdict: SAME
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chain_kernel(x_ptr, bias_ptr, y_ptr, total, width, scale, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < total
    v = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    v += tl.load(bias_ptr + offs % width, mask=mask, other=0.0).to(tl.float32)
    v = v / (1.0 + tl.exp(-v)) * scale
    u = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    y = v / (1.0 + tl.exp(-2.0 * u))
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.bias = nn.Parameter((0.1 * torch.randn(width)).half())
        self.scale = scale

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        chain_kernel[(triton.cdiv(total, 2048),)](
            x, self.bias, y, total, x.shape[-1], self.scale, BLOCK=2048, num_warps=8
        )
        return y
