"""No guard for a tensor of zeros.

reference: h_int8
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        scale = x.abs().amax() / 127
        return torch.round(x / scale).clamp(-127, 127) * scale
