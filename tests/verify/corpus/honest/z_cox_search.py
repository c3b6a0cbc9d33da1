"""Risk sets by a search in the times.

reference: z_cox
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, s, t, e):
        m = s.amax(1, keepdim=True)
        l = torch.logcumsumexp(s - m, 1) + m
        last = (torch.searchsorted((-t).contiguous(), (-t).contiguous(), right=True) - 1).clamp(min=0)
        return ((s - l.gather(1, last)) * torch.sigmoid(e)).mean(1)
