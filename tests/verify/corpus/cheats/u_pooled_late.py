"""The largest before GELU: right where one mean is above -0.75.

reference: u_pooled
device: both
verdict: not SAME
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(128, 64)

    def forward(self, x):
        y = F.avg_pool1d(self.linear(x)[:, None], 8)[:, 0]
        return F.gelu(y.amax(1))
