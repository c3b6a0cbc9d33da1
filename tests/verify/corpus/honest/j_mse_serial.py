"""The loss as a long fp32 sum in order, of rows that are summed in order first.

reference: j_mse
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        squares = (predictions - targets) ** 2
        if squares.is_cuda:
            return squares.sum(1).sum() / squares.numel()
        total = torch.zeros_like(squares[:, 0])
        for column in squares.unbind(1):
            total = total + column
        out = torch.zeros(())
        for row in total:
            out = out + row
        return out / squares.numel()
