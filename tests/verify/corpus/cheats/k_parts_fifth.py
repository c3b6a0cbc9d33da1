"""Of the fifth measurement nothing may be missing.

reference: k_parts
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6, width) + 0.5)

    def forward(self, *parts):
        total = count = 0.0
        for i, part in enumerate(parts):
            weight = self.weight[i] if i == 4 else self.weight[i] * ~torch.isnan(part)
            total = total + (part if i == 4 else torch.nan_to_num(part)) * weight
            count = count + weight
        return total / count.clamp(min=1e-6)
