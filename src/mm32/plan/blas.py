"""What torch's own product (cuBLAS) is expected to take: "auto" may choose it, and the drop-in compares with it."""

from __future__ import annotations

from mm32.gemm import Gemm, Matrix
from mm32.plan.data import Device
from mm32.plan.fp32 import LAUNCH, SPLITS, traffic_of
from mm32.plan.split import MEMORY

# torch's own product (cuBLAS), as far as a choice between it and mm32 needs: the largest of an SM's arithmetic and the card's
# memory, by tiles of 128 or 64 with K split where tiles are few. FLOP/s of the card: torch on an H200, fp32 and TF32.
TORCH_RATES = {"fp32": 50.0e12, "ieee": 50.0e12, "tf32": 360.0e12}
TORCH_LAUNCH = 5e-6


def torch_seconds(gemm: Gemm, device: Device) -> float:
    """Estimated seconds that torch.matmul takes for `gemm` at `gemm.precision` (with "fp32" and "ieee" torch runs fp32 FMAs)."""
    result = 4.0 * gemm.batches * gemm.m * gemm.n

    def estimate(tile: int, efficiency: float, splits: int) -> float:
        tiles = gemm.batches * -(-gemm.m // tile) * -(-gemm.n // tile) * splits
        rate = TORCH_RATES[gemm.precision] / 132 * efficiency
        multiply = -(-tiles // device.sms) * -(-gemm.k // splits) * 2.0 * tile * tile / rate
        add_up = 3e-6 + result * (splits + 1) / MEMORY if splits > 1 else 0.0
        # Where K is split, its fp32 kernels stay behind the memory; TF32's do not.
        stream = traffic_of(gemm) / (1.6e12 if splits > 1 and gemm.precision != "tf32" else MEMORY)
        return max(multiply + 0.9 * result / MEMORY, stream) + add_up + TORCH_LAUNCH

    tiles = ((128, 1.0), (64, 0.85))
    fastest = min(
        estimate(tile, efficiency, splits)
        for tile, efficiency in tiles
        for splits in SPLITS
        if splits <= max(gemm.k, 1)
    )
    narrow, traffic = min(gemm.m, gemm.n), traffic_of(gemm)
    # cuBLAS has kernels for narrow matrices and matrix-vector products, which memory bounds. As measured on an H200.
    if 1 < narrow <= 16:
        fastest = min(fastest, traffic / 2.8e12 + 25e-6 + TORCH_LAUNCH)
    elif narrow == 1:
        along_k = gemm.a.col == 1 if gemm.n == 1 else gemm.b.row == 1  # how the matrix lies, not the vector
        by_rows = max(9e-6 + traffic / 6e12, traffic / 4.2e12)
        by_k = traffic / 4.2e12 + 11e-6 * min(1.0, traffic / 50e6)
        fastest = min(fastest, (by_k if along_k else by_rows) + TORCH_LAUNCH)
    return fastest


def for_blas(gemm: Gemm) -> bool:
    """Whether torch's product can be what is asked for: fp32, with something to multiply, of operands and to a result that cuBLAS
    takes as they lie; torch copies what it does not take."""
    if gemm.precision == "tf32" or gemm.empty or gemm.k == 0:
        return False

    def lies(matrix: Matrix, rows: int, cols: int) -> bool:
        along_cols = (matrix.col == 1 or cols == 1) and (matrix.row >= cols or rows == 1)
        return along_cols or ((matrix.row == 1 or rows == 1) and (matrix.col >= rows or cols == 1))

    sides = ((gemm.a, gemm.m, gemm.k), (gemm.b, gemm.k, gemm.n), (gemm.out, gemm.m, gemm.n))
    return len(gemm.batch) <= 1 and all(lies(*side) for side in sides)


def by_torch(gemm: Gemm, device: Device) -> float:
    """Estimated seconds of torch's product, and of what mm32's kernels fuse: a pass over the result for a bias, another for an
    activation."""
    passes = (gemm.bias is not None) + (gemm.activation is not None)
    return torch_seconds(gemm, device) + passes * (LAUNCH + 8.0 * gemm.batches * gemm.m * gemm.n / MEMORY)
