"""The step at which the rate stops rising falls already.

reference: i_warm
device: both
verdict: not SAME
"""

import torch
from torch import nn

WARM = 4000


class ModelNew(nn.Module):
    def forward(self, p, g, step):
        rising = (step + 1).to(p.dtype) / WARM
        falling = 0.1 ** ((step - WARM) // 30000).to(p.dtype) / 3
        return torch.addcmul(p, torch.where(step < WARM, rising, falling), g, value=-0.02)
