import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """A selective scan: a state of sixteen numbers for each channel, whose decay each step chooses."""

    def __init__(self, D, N):
        super().__init__()
        self.A = nn.Parameter(torch.log(torch.arange(1, N + 1).float().repeat(D, 1)))
        self.D = nn.Parameter(torch.ones(D))
        self.bias = nn.Parameter(torch.randn(D) * 0.1 - 4)

    def forward(self, u, dt, B, C):
        A = -torch.exp(self.A)
        dt = F.softplus(dt + self.bias)
        h = torch.zeros(u.shape[0], u.shape[2], A.shape[1], dtype=u.dtype, device=u.device)
        ys = []
        for t in range(u.shape[1]):
            h = torch.exp(dt[:, t, :, None] * A) * h + (dt[:, t] * u[:, t])[..., None] * B[:, t, None]
            ys.append(torch.einsum("bdn,bn->bd", h, C[:, t]))
        return torch.stack(ys, 1) + u * self.D


def get_inputs():
    return [torch.randn(2, 128, 64), torch.randn(2, 128, 64), torch.randn(2, 128, 16), torch.randn(2, 128, 16)]


def get_init_inputs():
    return [64, 16]
