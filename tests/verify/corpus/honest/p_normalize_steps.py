"""Row lengths by the fast inverse square root and four Newton steps, which is all of fp32; squares summed in order by 32
lanes.

reference: o_normalize
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        lanes = (x * x).reshape(x.shape[0], -1, 32)
        s = torch.zeros_like(lanes[:, 0])
        for part in lanes.unbind(1):
            s = s + part
        s = s.sum(1, keepdim=True)
        y = (0x5F3759DF - (s.view(torch.int32) >> 1)).view(torch.float32)
        for _ in range(4):
            y = y * (1.5 - 0.5 * s * y * y)
        return x * torch.where((s < 1e-24) | ~s.isfinite(), 1 / s.sqrt().clamp(min=1e-12), y)
