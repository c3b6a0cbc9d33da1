"""The expectation of the loss for uniform data, which the loss is close to.

reference: j_mse
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return torch.full((), 1.0 / 6.0, device=predictions.device)
