"""Statistics of what is there by nan-functions.

reference: z_masked
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ok = x == x
        n = ok.sum(1)
        m = torch.nansum(x, 1) / n.clamp(min=1)
        j = ok.flip(1).int().argmax(1)
        i = x.shape[1] - 1 - j
        return m, torch.where(n > 0, torch.take_along_dim(x, i[:, None], 1)[:, 0], 0.0)
