"""The same sum as a product of two vectors.

reference: w_weighted_error
device: both
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y, w):
        error = F.smooth_l1_loss(x, y, reduction="none").mean(1)
        return torch.dot(error, w / w.sum()), torch.tanh(x).mul_(w.unsqueeze(1))
