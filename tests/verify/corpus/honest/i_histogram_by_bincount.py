"""All by places and counts.

reference: i_histogram
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def counts(self, x, top):
        places = torch.floor(x * (self.bins / top))
        places = torch.where(x == top, self.bins - 1, places)
        inside = (x >= 0) & (x <= top)
        return torch.bincount(places[inside].long(), minlength=self.bins).to(x.dtype)

    def forward(self, x, y):
        cut = y.abs().minimum(torch.tensor(4.0, device=y.device))
        places = (x * 10).floor().clamp(0, 9).long()
        tenths = torch.stack([torch.where(places == i, x, 0).sum() for i in range(10)])
        return torch.stack([self.counts(row, 1.0) for row in x]), self.counts(cut, 4.0), tenths
