"""Three fp16 products, with ONE power-of-two scale for all of A and one for all of B.
Right for data of one magnitude. Wrong for rows far below the largest: rows of A that are 2^-37 of its largest number
become exactly 0, and those of 2^-30 keep six bits, where fp32 has all 24.

reference: c_batched_product
device: cuda
verdict: not SAME
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bmm_kernel(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    z = tl.program_id(2)
    a += z * sa
    b += z * sb
    c += z * sc
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        kk = k + rk
        at = tl.load(a + rm[:, None] * sam + kk[None, :] * sak, mask=(rm[:, None] < M) & (kk[None, :] < K), other=0.0)
        bt = tl.load(b + kk[:, None] * sbk + rn[None, :] * sbn, mask=(kk[:, None] < K) & (rn[None, :] < N), other=0.0)
        ah = at.to(tl.float16)
        al = (at - ah.to(tl.float32)).to(tl.float16)
        bh = bt.to(tl.float16)
        bl = (bt - bh.to(tl.float32)).to(tl.float16)
        p = tl.dot(al, bh)
        p = tl.dot(ah, bl, p)
        p = tl.dot(ah, bh, p)
        acc = acc + p
    tl.store(c + rm[:, None] * scm + rn[None, :] * scn, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def scale(x):
    """A power of two that brings the largest number to about 2^12."""
    exponent = torch.frexp(x.abs().amax().clamp_min(1e-30)).exponent
    return torch.ldexp(torch.ones((), device=x.device), 12 - exponent)


class ModelNew(nn.Module):
    def forward(self, A, B):
        n, M, K = A.shape
        N = B.shape[2]
        sa, sb = scale(A), scale(B)
        a, b = A * sa, B * sb
        C = torch.empty(n, M, N, device=A.device, dtype=torch.float32)
        BM, BN, BK = 64, 64, 32
        grid = (triton.cdiv(M, BM), triton.cdiv(N, BN), n)
        bmm_kernel[grid](
            a,
            b,
            C,
            M,
            N,
            K,
            a.stride(1),
            a.stride(2),
            b.stride(1),
            b.stride(2),
            C.stride(1),
            C.stride(2),
            a.stride(0),
            b.stride(0),
            C.stride(0),
            BM,
            BN,
            BK,
            num_warps=4,
        )
        return C.div_(sa).div_(sb)
