"""Vectors turned by quaternions, through their rotation matrices."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, v):
        w, x, y, z = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
        rows = [
            (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
            (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
            (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
        ]
        turn = torch.stack([torch.stack(row, -1) for row in rows], -2)
        return torch.einsum("...ij,...j->...i", turn, v)


def get_inputs():
    return [torch.randn(5, 701, 4), torch.randn(5, 701, 3)]
