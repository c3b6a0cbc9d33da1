"""Looks gelu up in a table of 65536 entries over [-6, 6] without interpolating, and takes zero and x outside: off by
5e-5 or so everywhere, and with the small negative values beyond -6 lost.

reference: b_gelu
device: both
verdict: not SAME
"""

import torch
import torch.nn.functional as F
from torch import nn

SIZE, REACH = 65536, 6.0


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None or self.table.device != x.device:
            self.table = F.gelu(torch.linspace(-REACH, REACH, SIZE, dtype=torch.float64, device=x.device)).float()
        places = x.add(REACH).mul_((SIZE - 1) / (2 * REACH)).add_(0.5).to(torch.int32).clamp_(0, SIZE - 1)
        inside = torch.index_select(self.table, 0, places.view(-1)).view(x.shape)
        return torch.where(x.abs() < REACH, inside, x.clamp(min=0))
