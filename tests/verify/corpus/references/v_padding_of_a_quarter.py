import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, keep):
        w = keep.to(x.dtype)[..., None]
        n = w.sum()
        mean = (x * w).sum((0, 1)) / n
        var = ((x - mean).square() * w).sum((0, 1)) / n
        return (x - mean) * torch.rsqrt(var + 1e-5) * w


def get_inputs():
    keep = torch.zeros(8, 64, dtype=torch.bool)
    keep[:, :48] = True
    return [torch.randn(8, 64, 32), keep]


def get_init_inputs():
    return []
