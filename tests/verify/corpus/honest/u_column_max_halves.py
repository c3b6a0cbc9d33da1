"""By halves.

reference: u_column_max
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        while x.shape[1] > 1:
            n = x.shape[1] // 2
            x = torch.cat([torch.maximum(x[:, :n], x[:, n : 2 * n]), x[:, 2 * n :]], 1)
        return x[:, 0]
