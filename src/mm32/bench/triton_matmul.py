"""An fp32 matmul in Triton whose dot has `input_precision="tf32x3"`: what a user of Triton gets for fp32 on tensor cores.

A block computes a BLOCK_M x BLOCK_N tile of one batch's result. Tiles are taken in groups of 8 rows of tiles, so that
neighbouring blocks share data in L2 (Triton's tutorial "Matrix Multiplication" explains the order). Operands may have any
strides, edges are masked, and Triton's autotuner chooses the tile on the first call for a size and layout.

The method: each fp32 number is split into two TF32 numbers, and three of the four products are added (big.small, small.big,
big.big). Importing this module needs triton; `mm32.bench.peers` imports it only when the implementation is asked for.
"""

# No `from __future__ import annotations`: Triton reads the kernel's annotations as objects.
import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 32}, num_warps=warps, num_stages=stages)
    for m, n, warps, stages in (
        (128, 256, 8, 3),
        (128, 128, 8, 3),
        (128, 128, 4, 4),
        (128, 64, 4, 4),
        (64, 128, 4, 4),
        (64, 64, 4, 5),
        (16, 64, 4, 6),
    )
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k", "a_row", "a_col", "b_row", "b_col"])
@triton.heuristics({"EVEN_K": lambda known: known["k"] % known["BLOCK_K"] == 0})
@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    a,
    b,
    c,
    bias,
    m,
    n,
    k,
    a_batch,
    a_row,
    a_col,
    b_batch,
    b_row,
    b_col,
    c_batch,
    HAS_BIAS: tl.constexpr,
    RELU: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    rows = tl.cdiv(m, BLOCK_M)
    columns = tl.cdiv(n, BLOCK_N)
    block = tl.program_id(0)
    batch = (block // (rows * columns)).to(tl.int64)
    tile = block % (rows * columns)
    group = tile // (GROUP * columns)
    height = min(rows - group * GROUP, GROUP)
    within = tile % (GROUP * columns)
    at_m = (group * GROUP + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = (within // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    at_k = tl.arange(0, BLOCK_K)
    in_m = (at_m < m)[:, None]
    in_n = (at_n < n)[None, :]

    # 64-bit offsets: 2^31 elements are 8 GB.
    a_at = a + batch * a_batch + at_m.to(tl.int64)[:, None] * a_row + at_k.to(tl.int64)[None, :] * a_col
    b_at = b + batch * b_batch + at_k.to(tl.int64)[:, None] * b_row + at_n.to(tl.int64)[None, :] * b_col
    step = tl.full([], BLOCK_K, tl.int64)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        if EVEN_K:
            x = tl.load(a_at, mask=in_m, other=0.0)
            y = tl.load(b_at, mask=in_n, other=0.0)
        else:
            x = tl.load(a_at, mask=in_m & (at_k < k - start)[None, :], other=0.0)
            y = tl.load(b_at, mask=in_n & (at_k < k - start)[:, None], other=0.0)
        total = tl.dot(x, y, total, input_precision="tf32x3")
        a_at += step * a_col
        b_at += step * b_row

    if HAS_BIAS:
        total += tl.load(bias + at_n, mask=at_n < n, other=0.0)[None, :]
    if RELU:
        total = tl.where(total < 0.0, 0.0, total)  # not maximum: a NaN stays one
    tl.store(c + batch * c_batch + at_m.to(tl.int64)[:, None] * n + at_n[None, :], total, mask=in_m & in_n)


def matmul(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, relu: bool = False) -> torch.Tensor:
    """Return A @ B, plus the bias if there is one, and ReLU of that if `relu`, as a contiguous tensor. A and B are float32 CUDA
    tensors (M, K), (K, N) or (batch, M, K), (batch, K, N) of any strides; the bias is (N,) and contiguous."""
    batched = a.dim() == 3
    a3, b3 = (a, b) if batched else (a[None], b[None])
    (batches, m, k), n = a3.shape, b3.shape[2]
    c = torch.empty((batches, m, n), device=a.device, dtype=torch.float32)

    def grid(chosen: dict[str, int]) -> tuple[int]:
        return (batches * triton.cdiv(m, chosen["BLOCK_M"]) * triton.cdiv(n, chosen["BLOCK_N"]),)

    _kernel[grid](
        a3,
        b3,
        c,
        c if bias is None else bias,
        m,
        n,
        k,
        *a3.stride(),
        *b3.stride(),
        m * n,
        HAS_BIAS=bias is not None,
        RELU=relu,
        GROUP=8,
    )
    return c if batched else c[0]
