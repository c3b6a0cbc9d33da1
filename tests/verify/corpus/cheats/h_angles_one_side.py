"""The cosine is limited above only.

reference: h_angles
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        cosine = (a * b).sum(-1) * torch.rsqrt((a * a).sum(-1)) * torch.rsqrt((b * b).sum(-1))
        return torch.acos(cosine.clamp(max=1))
