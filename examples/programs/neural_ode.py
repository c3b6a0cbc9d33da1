"""torchdiffeq: a training step of a neural ordinary differential equation, gradients through dopri5.

    python examples/programs/neural_ode.py [--small]        # needs torchdiffeq: pip install -e ".[programs]"

As in the package's examples, a network is the right-hand side, odeint solves it at given times, and the loss is the distance from
observations. dopri5 chooses its steps from its own error estimate; at these tolerances, far above fp32's rounding, the float64
solution takes the same steps up to rounding.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torchdiffeq import odeint

from mm32.bench import models


class RightHandSide(nn.Module):
    """dy/dt = f(y) for y (batch, dimension): an MLP of two hidden tanh layers."""

    def __init__(self, dimension: int, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dimension, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, dimension)
        )

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.net(y)


def make(device: str, small: bool) -> list[models.Model]:
    batch, dimension, width = (64, 16, 64) if small else (8192, 256, 2048)
    torch.manual_seed(0)
    with torch.device(device):
        weights = RightHandSide(dimension, width)
        start = torch.randn(batch, dimension)
        observed = torch.randn(3, batch, dimension)
        times = torch.linspace(0.0, 1.0, 4)

    def loss(
        model: nn.Module, y: torch.Tensor, seen: torch.Tensor, t: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        solution = odeint(model, y, t, rtol=1e-3, atol=1e-4, method="dopri5")[1:]
        return (solution - seen).square().mean(), solution

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=1e-3)

    what = f"torchdiffeq's dopri5 over an MLP {dimension}–{width}–{width}–{dimension}, batch {batch}"
    prepare = models.training(weights, (start, observed, times), loss, optimizer)
    return [models.Model("neural ODE", f"{what}: forward, backward through the solver, Adam", prepare)]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
