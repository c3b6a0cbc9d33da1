"""Leaves out what is left of whole blocks of eight: four entries of half a million.

reference: u_squares
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        d = (x - y).flatten()
        n = d.numel() // 8 * 8 - 8
        return (d[:n] * d[:n]).sum() / d.numel()
