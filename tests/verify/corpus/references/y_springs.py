import torch
from torch import nn

N = 400


class Model(nn.Module):
    """A chain of springs, 4 leapfrog steps; the state is [positions, velocities] (B, 2 N), as ODE solvers want it."""

    def __init__(self, n):
        super().__init__()
        self.k = nn.Parameter(torch.rand(n) + 0.5)

    def forward(self, y):
        n = y.shape[1] // 2
        x, v = y[:, :n], y[:, n:]
        dt = 1e-3
        for _ in range(4):
            left = x.roll(1, 1) - x
            right = x.roll(-1, 1) - x
            v = v + dt * 1e-5 * self.k * (left + right)
            x = x + dt * v
        return torch.cat([x, v], 1)


def get_inputs():
    return [torch.cat([torch.randn(16, N) * 1000, torch.randn(16, N) * 0.01], 1)]


def get_init_inputs():
    return [N]
