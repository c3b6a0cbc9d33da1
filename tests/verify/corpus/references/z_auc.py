import torch
import torch.nn as nn


class Model(nn.Module):
    """pairwise AUC per row, ties count one half; label from a second score"""

    def forward(self, s, y):
        lab = y > 0
        d = s[:, :, None] - s[:, None, :]
        w = (d > 0).to(s.dtype) + 0.5 * (d == 0).to(s.dtype)
        m = (lab[:, :, None] & ~lab[:, None, :]).to(s.dtype)
        return (w * m).sum((1, 2)) / m.sum((1, 2)).clamp(min=1)


def get_inputs():
    return [torch.randn(128, 64), torch.randn(128, 64)]
