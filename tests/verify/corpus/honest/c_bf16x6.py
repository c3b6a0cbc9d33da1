"""fp32 product by three bf16 pieces an operand and six products, accumulated in fp32 outside of the tensor cores.
Numbers that are not finite, or too large or small for that (2^50, 2^-50), take torch's own product.

reference: c_product_tn
device: cuda
verdict: SAME
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mm_kernel(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        kk = k + rk
        at = tl.load(a + rm[:, None] * sam + kk[None, :] * sak, mask=(rm[:, None] < M) & (kk[None, :] < K), other=0.0)
        bt = tl.load(b + kk[:, None] * sbk + rn[None, :] * sbn, mask=(kk[:, None] < K) & (rn[None, :] < N), other=0.0)
        ah = at.to(tl.bfloat16)
        ar = at - ah.to(tl.float32)
        am = ar.to(tl.bfloat16)
        al = (ar - am.to(tl.float32)).to(tl.bfloat16)
        bh = bt.to(tl.bfloat16)
        br = bt - bh.to(tl.float32)
        bm = br.to(tl.bfloat16)
        bl = (br - bm.to(tl.float32)).to(tl.bfloat16)
        p = tl.dot(al, bh)
        p = tl.dot(ah, bl, p)
        p = tl.dot(am, bm, p)
        p = tl.dot(am, bh, p)
        p = tl.dot(ah, bm, p)
        p = tl.dot(ah, bh, p)
        acc = acc + p
    tl.store(c + rm[:, None] * scm + rn[None, :] * scn, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def plain(x):
    """Whether all numbers are 0 or within 2^-50 .. 2^50."""
    m = x.abs()
    return ((m <= 2.0**50) & ((m >= 2.0**-50) | (m == 0))).all()


class ModelNew(nn.Module):
    def forward(self, A, B):
        if not bool(plain(A) & plain(B)):
            return torch.matmul(A.T, B)
        K, M = A.shape
        N = B.shape[1]
        C = torch.empty(M, N, device=A.device, dtype=torch.float32)
        BM, BN, BK = 64, 64, 32
        grid = (triton.cdiv(M, BM), triton.cdiv(N, BN))
        mm_kernel[grid](
            A,
            B,
            C,
            M,
            N,
            K,
            A.stride(1),
            A.stride(0),
            B.stride(0),
            B.stride(1),
            C.stride(0),
            C.stride(1),
            BM,
            BN,
            BK,
            num_warps=4,
        )
        return C
