"""What does not count is replaced before both sums.

reference: i_segments
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, lengths, start):
        places = torch.arange(x.shape[1], device=x.device)
        first = torch.where(places < lengths[:, None], x, 0).sum(1)
        return first / lengths.clamp(min=1), torch.where(places >= start, x, 0).sum(1)
