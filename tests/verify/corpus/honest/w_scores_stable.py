"""The same by the size of the scores, which does not overflow.

reference: w_scores
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, t):
        return (x.clamp(min=0) - x * t + torch.log1p(torch.exp(-x.abs()))).mean()
