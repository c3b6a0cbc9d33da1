"""Log-sum-exp around the maximum.

reference: j_logsumexp
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        largest = x.amax(1, keepdim=True)
        safe = torch.where(largest.isinf(), torch.zeros_like(largest), largest)
        return torch.exp(x - safe).sum(1).log() + safe[:, 0]
