"""A softplus that is infinite from 88 on.

reference: w_scores
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, t):
        return (torch.log(1 + torch.exp(x)) - t * x).mean()
