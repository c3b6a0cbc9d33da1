"""The loss from the sums of the rows, in another order than the reference, returned as a view of the one element of a
longer tensor.

reference: b_mse
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        difference = torch.sub(prediction, target)
        rows = difference.square_().sum(dim=-1)
        return rows.sum(dim=0, keepdim=True).div_(prediction.numel())[0]
