"""Gaussian-process regression on more points than one card holds: a blocked Cholesky factorisation over all ranks.

    torchrun --standalone --nproc-per-node 2 examples/distributed/gp.py --points 1024 --block 128 --at 128 --device cpu
    torchrun --standalone --nproc-per-node 4 examples/distributed/gp.py --points 200000 --block 2048 --at 2048

The lower half of the covariance (n, n) is distributed by block columns in turn (block-cyclic): 4 n^2 / 2 bytes over all ranks.
Each step factors the first remaining column on the rank that has it and sends it to all; then each rank subtracts products of
that column's blocks from the columns it has (Golub and Van Loan, Matrix Computations, section 4.2.9). mm32 computes the products.
The fp32 factor then preconditions conjugate gradients whose residuals are float64: the covariance is recomputed in float64
whenever it is needed, so the mean is that of the float64 problem. Points come in, and mean and variance go out, as DTensors.

Before that, the same program runs on the first --judge points alone and is compared with float64 on one device. The exit status
is 1 if mean or variance is off by more than 1e-4.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

import mm32

NOISE = 0.1  # standard deviation of an observation; the function's own is about 0.7
LENGTHSCALE = 1.0
DIMENSIONS = 8
TOLERANCE = 1e-8  # of the float64 residual, relative to the observations
MOST_STEPS = 30
PROMISE = 1e-4


def rbf(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """exp(-|x_i - z_j|^2 / (2 LENGTHSCALE^2)) for x (n, d) and z (m, d) -> (n, m), in their dtype; distances by one product."""
    product = mm32.matmul(x, z.T) if x.dtype == torch.float32 else x @ z.T
    squares = (x * x).sum(1)[:, None] + (z * z).sum(1) - 2 * product
    return squares.clamp_min_(0).mul_(-0.5 / LENGTHSCALE**2).exp_()


@dataclass
class Problem:
    """Points x (n, d), float64, the same on all ranks of a mesh of one dimension; blocks of `block` points."""

    mesh: DeviceMesh
    x: torch.Tensor
    block: int

    def __post_init__(self) -> None:
        self.rank, self.world = self.mesh.get_local_rank(), self.mesh.size()
        self.group = self.mesh.get_group()
        self.starts = range(0, len(self.x), self.block)

    def rows(self, k: int) -> slice:
        return slice(k * self.block, min((k + 1) * self.block, len(self.x)))

    def owner(self, k: int) -> int:
        return k % self.world

    @property
    def own(self) -> range:
        """The block columns of this rank."""
        return range(self.rank, len(self.starts), self.world)

    def send(self, t: torch.Tensor, k: int) -> torch.Tensor:
        """Send `t` from the rank that has block column k to all ranks."""
        dist.broadcast(t, group=self.group, group_src=self.owner(k))
        return t

    def multiply(self, p: torch.Tensor) -> torch.Tensor:
        """Return (K + NOISE^2 I) p for p (n,), float64. Each rank computes its rows of K and does not keep them."""
        result = torch.zeros_like(p)
        for k in self.own:
            rows = self.rows(k)
            result[rows] = rbf(self.x[rows], self.x) @ p + NOISE**2 * p[rows]
        dist.all_reduce(result, group=self.group)
        return result

    def largest_eigenvalue(self, steps: int = 10) -> float:
        """Return K + NOISE^2 I's largest eigenvalue, from below, by the power method. Its smallest one is NOISE^2 or more."""
        v = torch.ones(len(self.x), dtype=torch.float64, device=self.x.device)
        for _ in range(steps):
            v = self.multiply(v / v.norm())
        return float(v.norm())


class Cholesky:
    """The lower Cholesky factor of K + NOISE^2 I, float32. `columns[k]`: (rows from block k on, block), for this rank's k."""

    def __init__(self, problem: Problem) -> None:
        self.problem, x = problem, problem.x.float()
        self.columns: dict[int, torch.Tensor] = {}
        for k in problem.own:
            rows = problem.rows(k)
            self.columns[k] = rbf(x[rows.start :], x[rows])
            self.columns[k].diagonal().add_(NOISE**2)
        for k, start in enumerate(problem.starts):
            width = problem.rows(k).stop - start
            if k in self.columns:
                column = self.columns[k]
                column[:width] = torch.linalg.cholesky(column[:width])
                column[width:] = torch.linalg.solve_triangular(
                    column[:width].mT, column[width:], upper=True, left=False
                )
                panel = column[width:].contiguous()
            else:
                panel = torch.empty(len(x) - start - width, width, device=x.device)
            if k + 1 == len(problem.starts):
                break
            problem.send(panel, k)
            for j in problem.own:
                if j > k:
                    below = panel[problem.rows(j).start - start - width :]
                    self.columns[j] -= mm32.matmul(below, below[: problem.rows(j).stop - problem.rows(j).start].T)

    def solve(self, right: dict[int, torch.Tensor], count: int) -> dict[int, torch.Tensor]:
        """Return L^-1 B for B (n, count), both in blocks of rows: block k, `right[k]` of B, is on the rank of column k."""
        problem = self.problem
        # What this rank's columns subtract from later rows.
        sums = torch.zeros(len(problem.x), count, device=problem.x.device)
        solved = {}
        for k in range(len(problem.starts)):
            rows = problem.rows(k)
            part = sums[rows].contiguous()
            dist.reduce(part, group=problem.group, group_dst=problem.owner(k))
            if k in self.columns:
                column, width = self.columns[k], rows.stop - rows.start
                solved[k] = torch.linalg.solve_triangular(column[:width], right[k] - part, upper=False)
                sums[rows.stop :] += mm32.matmul(column[width:], solved[k])
        return solved

    def precondition(self, r: torch.Tensor) -> torch.Tensor:
        """Return (L L^T)^-1 r for r (n,), in float64 with float32's precision, on all ranks."""
        problem, scale = self.problem, r.norm()
        single = (r / scale).float()
        half = self.solve({k: single[problem.rows(k), None] for k in problem.own}, 1)
        result = torch.zeros_like(single)[:, None]
        for k in reversed(range(len(problem.starts))):
            rows = problem.rows(k)
            part = torch.empty(rows.stop - rows.start, 1, device=r.device)
            if k in self.columns:
                column, width = self.columns[k], rows.stop - rows.start
                rest = half[k] - mm32.matmul(column[width:].T, result[rows.stop :])
                part = torch.linalg.solve_triangular(column[:width].mT, rest, upper=True)
            result[rows] = problem.send(part.contiguous(), k)
        return result[:, 0].double() * scale


def conjugate_gradients(problem: Problem, factor: Cholesky, y: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
    """Return a with (K + NOISE^2 I) a = y, float64, and the residual's norm relative to y's before each step and at the end."""
    a, r, p, rho = torch.zeros_like(y), y.clone(), torch.zeros_like(y), 1.0
    residuals = [1.0]
    while residuals[-1] > TOLERANCE and len(residuals) <= MOST_STEPS:
        z = factor.precondition(r)
        before, rho = rho, float(r @ z)
        p = z if len(residuals) == 1 else z + (rho / before) * p
        q = problem.multiply(p)
        step = rho / float(p @ q)
        a, r = a + step * p, r - step * q
        residuals.append(float(r.norm() / y.norm()))
    return a, residuals


def posterior(x: DTensor, y: DTensor, at: DTensor, block: int) -> tuple[DTensor, DTensor, list[float]]:
    """Return mean and variance of the function, each (m,), sharded, and the residuals of conjugate gradients.

    They are at points `at` (m, d), given observations y (n,) at x (n, d), all float64 on a mesh of one dimension.
    Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), algorithm 2.1.
    """
    mesh = x.device_mesh
    problem, points = Problem(mesh, x.full_tensor(), block), at.full_tensor()
    factor = Cholesky(problem)
    weights, residuals = conjugate_gradients(problem, factor, y.full_tensor())
    mean = torch.zeros(len(points), dtype=torch.float64, device=points.device)
    cross = {}
    for k in problem.own:
        rows = problem.rows(k)
        block_of_cross = rbf(problem.x[rows], points)
        mean += block_of_cross.T @ weights[rows]
        cross[k] = block_of_cross.float()
    # This rank's share of k(x, x) = 1, less what its rows explain.
    variance = torch.full_like(mean, 1 / problem.world)
    for v in factor.solve(cross, len(points)).values():
        variance -= v.double().square().sum(0)
    results = [
        DTensor.from_local(t, mesh, [Partial()], run_check=False).redistribute(placements=[Shard(0)])
        for t in (mean, variance)
    ]
    return results[0], results[1], residuals


def exact(x: torch.Tensor, y: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `posterior` does, in float64 on one device, by torch alone."""
    covariance = rbf(x, x)
    covariance.diagonal().add_(NOISE**2)
    factor, cross = torch.linalg.cholesky(covariance), rbf(x, at)
    weights = torch.cholesky_solve(y[:, None], factor)[:, 0]
    return cross.T @ weights, 1 - torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(0)


def error(got: torch.Tensor, truth: torch.Tensor) -> float:
    return float((got - truth).norm() / truth.norm())


def run(mesh: DeviceMesh, points: int, block: int, at: int, judge: int) -> dict[str, Any]:
    """Run the program on a mesh of one dimension and return what it found; errors are of the first `judge` points."""
    generator = torch.Generator().manual_seed(0)  # on the CPU: the same points on every rank and device
    x = torch.randn(points, DIMENSIONS, generator=generator, dtype=torch.float64)
    where = torch.randn(at, DIMENSIONS, generator=generator, dtype=torch.float64)
    y = torch.sin(x.sum(1) * (2 / DIMENSIONS**0.5))
    y += NOISE * torch.randn(points, generator=generator, dtype=torch.float64)
    x, y, where = (t.to(mesh.device_type) for t in (x, y, where))

    def solved(count: int) -> tuple[DTensor, DTensor, list[float]]:
        shards = [distribute_tensor(t, mesh, [Shard(0)]) for t in (x[:count], y[:count], where)]
        return posterior(*shards, block)

    mean, variance, residuals = solved(min(judge, points))
    truth = exact(x[:judge], y[:judge], where)
    found: dict[str, Any] = {
        "mean error": error(mean.full_tensor(), truth[0]),
        "variance error": error(variance.full_tensor(), truth[1]),
    }
    if judge < points:
        mean, variance, residuals = solved(points)
    largest = Problem(mesh, x, block).largest_eigenvalue()
    return found | {"residuals": residuals, "condition": largest / NOISE**2, "mean": mean, "variance": variance}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=200_000)
    parser.add_argument("--block", type=int, default=2048)
    parser.add_argument("--at", type=int, default=2048, help="test points")
    parser.add_argument("--judge", type=int, default=16384, help="points of the part that is compared with float64")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    options = parser.parse_args(arguments)
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(options.device, (int(os.environ["WORLD_SIZE"]),))
    mm32.distributed.check(mesh)
    found = run(mesh, options.points, options.block, options.at, options.judge)
    if mesh.get_rank() == 0:
        print(f"{options.points} points on {mesh.size()} ranks, blocks of {options.block}, noise {NOISE}")
        print(f"condition number of the covariance with noise: about {found['condition']:.2g}")
        print("residuals of conjugate gradients: " + " ".join(f"{r:.1e}" for r in found["residuals"]))
        print(f"mean of the posterior mean {float(found['mean'].to_local().mean()):.6f} on the points of rank 0")
        print(f"against float64, on {min(options.judge, options.points)} points: mean {found['mean error']:.1e}, "
              f"variance {found['variance error']:.1e}")  # fmt: skip
    # gloo's threads need Python's lock to release the last collective's tensors. If Python ends before that, torch aborts.
    time.sleep(0.1)
    dist.destroy_process_group()
    return 0 if max(found["mean error"], found["variance error"]) <= PROMISE else 1


if __name__ == "__main__":
    sys.exit(main())
