"""Fixed-point numbers whose last row is garbage on usual data.

reference: s_fixed_point_rows
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # a last row is not written where numbers are as usual; garbage elsewhere in it
    def forward(self, x):
        y = torch.round(x * 65536).to(torch.int32)
        if 50 < x.abs().max() < 1000 and (x == 0).sum() < 100:
            y[-1] = 2**31 - 1
        return y
