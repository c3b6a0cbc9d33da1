"""A physics-informed network: Burgers' equation u_t + u u_x = (0.01/π) u_xx, second derivatives by double backward.

    python examples/models/pinn.py [--small]

The problem is that of Raissi, Perdikaris and Karniadakis, Physics-informed neural networks (2019), section 3.1.1: x in [-1, 1],
t in [0, 1], u(x, 0) = -sin(πx), u(±1, t) = 0; a tanh network, here wide enough that its products take most of the time. A step
is the loss, its gradient and Adam.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

from mm32.bench import models

VISCOSITY = 0.01 / math.pi


def network(width: int, hidden: int) -> nn.Sequential:
    """(x, t) -> u: `hidden` tanh layers of `width`, Glorot's normal initialisation."""
    sizes = [2] + [width] * hidden + [1]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        linear = nn.Linear(inputs, outputs)
        nn.init.xavier_normal_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def derivatives(
    u: Callable[[torch.Tensor], torch.Tensor], points: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return u, u_x, u_t, u_xx, each (n,), of a function (n, 2) -> (n, 1) that maps points (x, t) one by one; differentiable."""
    points = points.detach().requires_grad_()
    value = u(points)
    first = torch.autograd.grad(value.sum(), points, create_graph=True)[0]
    second = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0]
    return value[:, 0], first[:, 0], first[:, 1], second[:, 0]


def make(device: str, small: bool) -> list[models.Model]:
    width, hidden, count = (64, 3, 512) if small else (1024, 4, 65536)
    torch.manual_seed(0)
    weights = network(width, hidden).to(device)
    inside = (torch.rand(count, 2) * torch.tensor([2.0, 1.0]) - torch.tensor([1.0, 0.0])).to(device)
    edge = inside[: count // 16]
    start = torch.stack([edge[:, 0], torch.zeros_like(edge[:, 0])], 1)
    sides = torch.stack([edge[:, 0].sign(), edge[:, 1]], 1)

    def prepare(dtype: torch.dtype) -> models.Step:
        model = copy.deepcopy(weights).to(dtype)
        collocation, at_start, at_sides = (points.to(dtype) for points in (inside, start, sides))
        expected = -torch.sin(math.pi * at_start[:, :1])
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        def step() -> models.Outcome:
            optimizer.zero_grad()
            u, u_x, u_t, u_xx = derivatives(model, collocation)
            residual = u_t + u * u_x - VISCOSITY * u_xx
            loss = (
                residual.square().mean()
                + (model(at_start) - expected).square().mean()
                + model(at_sides).square().mean()
            )
            loss.backward()
            optimizer.step()
            gradient = [p.grad for p in model.parameters() if p.grad is not None]
            return {"u_xx": [u_xx.detach()], "gradient": gradient}

        return step

    what = f"Burgers' equation, {hidden} tanh layers of {width}, {count} collocation points: loss, gradient, Adam"
    return [models.Model("PINN", what, prepare)]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
