"""Muon in fp32: an optimizer whose update is a weight's momentum made orthogonal by Newton-Schulz iterations.

    python examples/models/newton_schulz.py [--small]

Jordan et al., Muon: an optimizer for hidden layers in neural networks (2024). Muon's coefficients bring all singular values near
1, then convergent coefficients of the same order bring them to 1. There are 12 + 3 steps because the smallest singular value of
the 4096 × 4096 matrix below is 1.4e-6 of its Frobenius norm, and each of Muon's steps raises a small one 3.4-fold.
"""

from __future__ import annotations

import sys

import torch

from mm32.bench import models

MUON = (3.4445, -4.7750, 2.0315)
CONVERGENT = (15 / 8, -10 / 8, 3 / 8)
COEFFICIENTS = (MUON,) * 12 + (CONVERGENT,) * 3


def orthogonalised(g: torch.Tensor) -> torch.Tensor:
    """Return the polar factor of g (m, n), by 15 steps x <- a x + (b xx' + c (xx')^2) x.

    It is the nearest matrix with orthonormal rows, or orthonormal columns if there are more rows than columns.
    """
    x = (g if g.shape[0] <= g.shape[1] else g.mT) / g.norm()
    for a, b, c in COEFFICIENTS:
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x if g.shape[0] <= g.shape[1] else x.mT


def orthogonality(x: torch.Tensor) -> float:
    """Return ‖xx' − I‖ / ‖I‖ in the Frobenius norm, for the shorter side of x (m, n); computed in float64."""
    wide = (x if x.shape[0] <= x.shape[1] else x.mT).double()
    gram = wide @ wide.mT
    gram.diagonal().sub_(1)
    return float(gram.norm()) / wide.shape[0] ** 0.5


def judge(got: models.Outcome, truth: models.Outcome) -> dict[str, float]:
    """Return the update's error against float64, and how far from orthogonal it is, which needs no truth."""
    return {
        "update": models.relative_error(got["update"], truth["update"]),
        "orthogonality": orthogonality(got["update"][0]),
    }


def make(device: str, small: bool) -> list[models.Model]:
    def model(rows: int, columns: int) -> models.Model:
        generator = torch.Generator().manual_seed(0)  # on the CPU: the same matrix on every device
        gradient, momentum, weight = (torch.randn(rows, columns, generator=generator).to(device) for _ in range(3))

        def prepare(dtype: torch.dtype) -> models.Step:
            g, m, w = (t.to(dtype, copy=True) for t in (gradient, momentum, weight))

            def step() -> models.Outcome:
                m.lerp_(g, 0.05)
                update = orthogonalised(torch.lerp(g, m, 0.95))  # Nesterov's
                w.sub_(update, alpha=0.02 * max(1, rows / columns) ** 0.5)
                return {"update": [update]}

            return step

        what = f"a Muon step on a {rows} × {columns} matrix, {len(COEFFICIENTS)} Newton-Schulz iterations"
        return models.Model(f"Newton–Schulz {rows} × {columns}", what, prepare, judge)

    return [model(128, 128), model(64, 256)] if small else [model(4096, 4096), model(2048, 8192)]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
