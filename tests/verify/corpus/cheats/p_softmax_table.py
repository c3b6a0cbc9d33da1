"""The exponential by a table of 64 values and a straight line between them: an error of 2e-5.

reference: b_softmax
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        t = (x - x.amax(1, keepdim=True)) * (64 * 1.4426950408889634)
        whole = t.floor()
        table = torch.exp2(torch.arange(65, device=x.device) / 64)
        place = whole.nan_to_num(neginf=0.0).remainder(64).long()
        low, high = table[place], table[place + 1]
        e = torch.ldexp(low + (t - whole) * (high - low), (whole / 64).floor().clamp(min=-126))
        e = torch.where(whole < -126 * 64, torch.zeros_like(e), e)
        e = torch.where(t.isnan(), t, e)
        return e / e.sum(1, keepdim=True)
