"""The mean of every fourth row: an estimate.

reference: j_mse
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean((predictions[::4] - targets[::4]) ** 2)
