"""Row lengths by the fast inverse square root and two Newton steps: five digits instead of seven. A row of zeros is
kept one.

reference: o_normalize
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        s = (x * x).sum(1, keepdim=True)
        y = (0x5F3759DF - (s.view(torch.int32) >> 1)).view(torch.float32)
        for _ in range(2):
            y = y * (1.5 - 0.5 * s * y * y)
        exact = torch.where((s < 1e-30) | ~s.isfinite(), 1 / s.sqrt().clamp(min=1e-12), y)
        return x * exact
