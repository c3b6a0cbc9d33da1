"""The mean of squares by 4096 sums in order and a sum of those in order.

reference: o_mse_loss
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, predicted, wanted):
        lanes = torch.zeros_like(predicted[0])
        for row in (predicted - wanted).square():
            lanes = lanes + row
        total = torch.zeros_like(lanes[0])
        for lane in lanes:
            total = total + lane
        return total / predicted.numel()
