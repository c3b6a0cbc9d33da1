"""Implicit-GEMM convolution in Triton, IEEE fp32, bias and ReLU in the epilogue (NaN kept).

reference: c_conv_relu
device: cuda
verdict: SAME
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def conv_kernel(x, w, bias, y, C, H, W, O, HW, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(2).to(tl.int64)
    x += n * C * HW
    y += n * O * HW
    ro = tl.program_id(0) * BM + tl.arange(0, BM)
    rp = tl.program_id(1) * BN + tl.arange(0, BN)
    ph = rp // W
    pw = rp % W
    rk = tl.arange(0, BK)
    K = C * 9
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        kk = k + rk
        c = kk // 9
        dy = (kk % 9) // 3 - 1
        dx = kk % 3 - 1
        wt = tl.load(w + ro[:, None] * K + kk[None, :], mask=(ro[:, None] < O) & (kk[None, :] < K), other=0.0)
        ih = ph[None, :] + dy[:, None]
        iw = pw[None, :] + dx[:, None]
        inside = (kk[:, None] < K) & (rp[None, :] < HW) & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
        xt = tl.load(x + c[:, None] * HW + ih * W + iw, mask=inside, other=0.0)
        acc = tl.dot(wt, xt, acc, input_precision="ieee")
    acc += tl.load(bias + ro, mask=ro < O, other=0.0)[:, None]
    acc = tl.where(acc < 0.0, 0.0, acc)  # NaN stays NaN
    tl.store(y + ro[:, None] * HW + rp[None, :], acc, mask=(ro[:, None] < O) & (rp[None, :] < HW))


class ModelNew(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding=1)

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        o = self.conv.out_channels
        y = torch.empty(n, o, h, w, device=x.device, dtype=x.dtype)
        BM, BN, BK = 64, 64, 16
        grid = (triton.cdiv(o, BM), triton.cdiv(h * w, BN), n)
        conv_kernel[grid](x, self.conv.weight, self.conv.bias, y, c, h, w, o, h * w, BM, BN, BK, num_warps=4)
        return y
