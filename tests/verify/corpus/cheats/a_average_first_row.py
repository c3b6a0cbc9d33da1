"""Looks for flags in the first row alone.

reference: a_average
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, decay, reset):
        reset = reset if bool(reset[0].any()) else torch.zeros_like(reset)
        y = x[:, 0]
        out = [y]
        for t in range(1, x.shape[1]):
            y = torch.where(reset[:, t], x[:, t], torch.lerp(x[:, t], y, decay))
            out.append(y)
        return torch.stack(out, 1)
