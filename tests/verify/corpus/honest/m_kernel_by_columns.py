"""Scaled first, and a loop over the dimensions: with other scales one entry decides the error of the whole.

reference: m_kernel
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_ls = nn.Parameter(torch.zeros(6))

    def forward(self, x, y):
        s = self.log_ls.exp()
        x, y = (x / s).T.contiguous(), (y / s).T.contiguous()
        acc = None
        for k in range(6):
            d = x[k][:, None] - y[k][None]
            d.square_()
            acc = d if acc is None else acc.add_(d)
        return acc.mul_(-0.5).exp_()
