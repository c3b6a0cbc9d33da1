import torch
from torch import nn


class Model(nn.Module):
    """Random flip, brightness, additive noise and one cutout square, per image."""

    def forward(self, x):
        B, _C, H, W = x.shape
        flip = torch.rand(B) < 0.5
        x = torch.where(flip[:, None, None, None], x.flip(-1), x)
        x = x * (0.8 + 0.4 * torch.rand(B, 1, 1, 1))
        x = x + 0.05 * torch.randn_like(x)
        cy, cx = torch.randint(0, H, (B,)), torch.randint(0, W, (B,))
        yy, xx = torch.arange(H), torch.arange(W)
        hole = ((yy[None, :, None] - cy[:, None, None]).abs() <= 4) & ((xx[None, None] - cx[:, None, None]).abs() <= 4)
        return x.masked_fill(hole[:, None], 0.0).clamp(0, 1)


def get_inputs():
    return [torch.rand(16, 3, 48, 48)]


def get_init_inputs():
    return []
