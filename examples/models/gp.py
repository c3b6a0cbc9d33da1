"""Gaussian-process regression: an RBF kernel, a blocked Cholesky factorisation, posterior mean and variance.

    python examples/models/gp.py [--small]

A step is the whole regression. Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), algorithm 2.1; the
factorisation is left-looking by block columns (Golub and Van Loan, Matrix Computations, section 4.2.8): all but n^2 of its n^3
operations are matrix products, one for each block column, with K as large as the factor is wide by then. In a right-looking one,
each block updates all columns after it: many products with K = block, and each element is read and written again for each block.
"""

from __future__ import annotations

import sys

import torch

from mm32.bench import models

NOISE = 0.1  # standard deviation of an observation; the function's own is about 0.7
LENGTHSCALE = 1.0


def rbf(x: torch.Tensor, z: torch.Tensor, lengthscale: float) -> torch.Tensor:
    """exp(-|x_i - z_j|^2 / (2 lengthscale^2)) for x (n, d) and z (m, d) -> (n, m); one product gives the distances."""
    squares = (x * x).sum(1)[:, None] + (z * z).sum(1) - 2 * (x @ z.T)
    return squares.clamp_min_(0).mul_(-0.5 / lengthscale**2).exp_()


def cholesky_(a: torch.Tensor, block: int) -> torch.Tensor:
    """Write the lower Cholesky factor of a symmetric positive definite a (n, n) over a's lower triangle, and return a.

    What is above the diagonal blocks is left as it was. Raises torch.linalg.LinAlgError if a is not positive definite to
    the precision of its products.
    """
    n = a.shape[0]
    for start in range(0, n, block):
        stop = min(start + block, n)
        if start:  # subtract from this block column what the columns before it explain
            a[start:, start:stop].addmm_(a[start:, :start], a[start:stop, :start].T, alpha=-1)
        diagonal = torch.linalg.cholesky(a[start:stop, start:stop])
        a[start:stop, start:stop] = diagonal
        a[stop:, start:stop] = torch.linalg.solve_triangular(diagonal.mT, a[stop:, start:stop], upper=True, left=False)
    return a


def solve_lower(factor: torch.Tensor, b: torch.Tensor, block: int) -> torch.Tensor:
    """Return x with factor @ x = b, for a lower triangular factor (n, n) and b (n, m), by blocks of rows."""
    x = b.clone()
    for start in range(0, x.shape[0], block):
        stop = min(start + block, x.shape[0])
        if start:
            x[start:stop].addmm_(factor[start:stop, :start], x[:start], alpha=-1)
        x[start:stop] = torch.linalg.solve_triangular(factor[start:stop, start:stop], x[start:stop], upper=False)
    return x


def posterior(
    x: torch.Tensor, y: torch.Tensor, at: torch.Tensor, lengthscale: float, noise: float, block: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and variance of the function, each (m,), at points `at` (m, d), given observations y (n,) at x (n, d)."""
    covariance = rbf(x, x, lengthscale)
    covariance.diagonal().add_(noise**2)
    factor = cholesky_(covariance, block)
    cross = rbf(x, at, lengthscale)
    # With V = L^-1 K*, the mean is V^T (L^-1 y), and the variance is k(x, x) = 1 less the squared norms of V's columns.
    v = solve_lower(factor, cross, block)
    return v.T @ solve_lower(factor, y[:, None], block)[:, 0], 1 - (v * v).sum(0)


def make(device: str, small: bool) -> list[models.Model]:
    n, m, d, block = (1024, 128, 8, 128) if small else (32768, 2048, 8, 1024)
    generator = torch.Generator().manual_seed(0)  # on the CPU: the same points on every device
    x, at = torch.randn(n, d, generator=generator), torch.randn(m, d, generator=generator)
    y = torch.sin(x.sum(1) * (2 / d**0.5)) + NOISE * torch.randn(n, generator=generator)

    def prepare(dtype: torch.dtype) -> models.Step:
        observed, values, points = (t.to(device, dtype) for t in (x, y, at))

        def step() -> models.Outcome:
            mean, variance = posterior(observed, values, points, LENGTHSCALE, NOISE, block)
            return {"mean": [mean], "variance": [variance]}

        return step

    what = f"{n} points in {d} dimensions, Cholesky in blocks of {block}, posterior mean and variance at {m} points"
    return [models.Model("Gaussian process", what, prepare)]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
