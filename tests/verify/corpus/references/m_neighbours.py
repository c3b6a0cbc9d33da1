import torch
from torch import nn


class Model(nn.Module):
    """k nearest neighbours of points in a cloud, excluding the point itself; indices and inverse-distance weights."""

    def forward(self, p):
        d = (p[:, None] - p[None]).square().sum(-1)
        d = d + torch.diag(torch.full((p.shape[0],), float("inf")))
        v, i = d.sort(dim=1, stable=True)
        v, i = v[:, :8], i[:, :8]
        w = 1 / (v.sqrt() + 1e-3)
        return i, w / w.sum(1, keepdim=True)


def get_inputs():
    return [torch.rand(300, 3)]


def get_init_inputs():
    return []
