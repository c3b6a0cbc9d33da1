"""A Muon step under FSDP2: gradients are sharded, and are made orthogonal without being gathered.

    torchrun --standalone --nproc-per-node 2 examples/distributed/muon.py --width 64 --device cpu
    torchrun --standalone --nproc-per-node 4 examples/distributed/muon.py --width 8192

A step of the Newton-Schulz iteration (examples/models/newton_schulz.py) multiplies x by a polynomial of its Gram matrix xx'. With
the long side of x sharded, xx' is a sum over ranks, one all-reduce of the short side squared, and all else is local to each rank:
`mm32.matmul` on DTensors. The step is compared with the same one in float64 in one process. The exit status is 1 if the new
weights are off by more than 1e-5.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard

import mm32

sys.path.insert(0, str(Path(__file__).parent.parent / "models"))
from newton_schulz import COEFFICIENTS, orthogonalised

RATE, PROMISE = 0.02, 1e-5


def orthogonalised_shards(g: DTensor) -> DTensor:
    """Return the polar factor of g (m, n), as `newton_schulz.orthogonalised` computes it, placed as g is."""
    wide = g if g.shape[0] <= g.shape[1] else g.mT
    x = wide.redistribute(placements=[Shard(1)]) / wide.norm()
    for a, b, c in COEFFICIENTS:
        gram = mm32.matmul(x, x.mT).redistribute(placements=[Replicate()])
        x = a * x + mm32.matmul(b * gram + c * mm32.matmul(gram, gram), x)
    return (x if g.shape[0] <= g.shape[1] else x.mT).redistribute(placements=g.placements)


def network(width: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


def step(model: nn.Module, x: torch.Tensor, orthogonal: Any) -> None:
    """Compute the loss and its gradient, and update every weight matrix."""
    (model(x) - x).square().mean().backward()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 2:
                p -= RATE * max(1, p.shape[0] / p.shape[1]) ** 0.5 * orthogonal(p.grad)


def run(mesh: DeviceMesh, width: int) -> float:
    """Return the worst relative error of a weight matrix after a step, against float64."""
    # More samples than the width: if a gradient has less than full rank, rounding errors are orthogonalised too.
    x = torch.randn(4 * width, width, generator=torch.Generator().manual_seed(1))  # the same on every rank and device
    truth, model = network(width).double().to(mesh.device_type), network(width).to(mesh.device_type)
    x = x.to(mesh.device_type)
    step(truth, x.double(), orthogonalised)
    mm32.replace_linear(model)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    mine = x.chunk(mesh.size())[mesh.get_local_rank()]
    step(model, mine, orthogonalised_shards)
    pairs = zip(model.parameters(), truth.parameters(), strict=True)
    with torch.no_grad():
        return max(float((p.full_tensor() - q).norm() / q.norm()) for p, q in pairs if p.dim() == 2)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    options = parser.parse_args(arguments)
    ranks = int(os.environ.get("WORLD_SIZE", 0))
    if not ranks:
        parser.error("start it by torchrun, a process for each rank")
    if options.width < 1 or 4 * options.width % ranks:  # ranks of fewer rows would count as much as others in the mean
        parser.error(
            f"--width: 4 times the width is the number of rows, which {ranks} ranks share alike; got {options.width}"
        )
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(options.device, (ranks,))
    mm32.distributed.check(mesh)
    worst = run(mesh, options.width)
    if mesh.get_rank() == 0:
        print(f"a Muon step of width {options.width} on {mesh.size()} ranks: weights against float64 {worst:.1e}")
    # gloo's threads need Python's lock to release the last collective's tensors. If Python ends before that, torch aborts.
    time.sleep(0.1)
    dist.destroy_process_group()
    return 0 if worst <= PROMISE else 1


if __name__ == "__main__":
    sys.exit(main())
