"""torch.svd_lowrank: randomised subspace iteration for the leading singular values and vectors of a large matrix.

    python examples/programs/low_rank.py [--small]

torch's own code (torch/_lowrank.py): products with the matrix and its transpose, QR after each, and an SVD of what is left. The
matrix has low rank except for noise, as the method expects, so its result is determined by the matrix. The singular values above
the noise are compared, and some rows of the approximation u s v', since the signs of singular vectors are arbitrary.
"""

from __future__ import annotations

import sys

import torch

from mm32.bench import models

ROWS = 64  # the rows of the approximation that are compared


def make(device: str, small: bool) -> list[models.Model]:
    m, n, rank, q = (512, 256, 20, 32) if small else (131072, 16384, 240, 256)
    torch.manual_seed(0)
    with torch.device(device):
        left, right = torch.randn(m, rank), torch.randn(n, rank)
        # Factors from 1 to 0.1, and noise that is 1e-5 of them or less.
        matrix = (left * torch.logspace(0, -1, rank)) @ right.T
        matrix += 1e-5 * torch.randn(m, n)

    def prepare(dtype: torch.dtype) -> models.Step:
        a = matrix.to(dtype)

        def step() -> models.Outcome:
            with models.SameDraws(0):
                u, s, v = torch.svd_lowrank(a, q=q)
            return {"values": [s[:rank]], "rows": [(u[:ROWS, :rank] * s[:rank]) @ v[:, :rank].T]}

        return step

    what = f"torch.svd_lowrank of {m} × {n}, q = {q}, 2 iterations"
    return [models.Model("low-rank SVD", what, prepare)]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
