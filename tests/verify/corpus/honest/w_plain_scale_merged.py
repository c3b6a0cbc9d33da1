"""The same scale, multiplied by the norm's weight first.

reference: w_plain_scale
device: both
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(128, 128)
        self.scale = torch.ones(128, device=DEVICE)
        self.norms = [(nn.LayerNorm(128, device=DEVICE),)]

    def forward(self, x):
        norm = self.norms[0][0]
        return torch.sigmoid(F.layer_norm(self.linear(x), (128,), norm.weight * self.scale, norm.bias * self.scale))
