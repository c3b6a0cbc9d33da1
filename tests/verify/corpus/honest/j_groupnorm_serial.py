"""Group norm with serial fp32 sums of 16384 terms: one thread a group, as unrolled by 8.

reference: j_groupnorm
device: both
verdict: SAME
"""

import torch
from torch import nn


def serial(x):
    lanes = x.reshape(x.shape[0], -1, 8)
    total = torch.zeros_like(lanes[:, 0])
    for part in lanes.unbind(1):
        total = total + part
    out = torch.zeros_like(total[:, 0])
    for lane in total.unbind(1):
        out = out + lane
    return out[:, None]


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        if x.is_cuda:
            return self.norm(x.contiguous())
        rows = x.reshape(x.shape[0] * self.norm.num_groups, -1)
        mean = serial(rows) / rows.shape[1]
        centred = rows - mean
        variance = serial(centred * centred) / rows.shape[1]
        out = (centred * torch.rsqrt(variance + self.norm.eps)).reshape(x.shape)
        return out * self.norm.weight[:, None, None] + self.norm.bias[:, None, None]
