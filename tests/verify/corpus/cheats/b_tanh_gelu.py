"""The approximation of gelu by tanh where the exact one is asked for: off by up to 5e-4, which a tolerance of 1e-3 lets
pass.

reference: b_gelu
device: both
verdict: not SAME
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return F.gelu(x, approximate="tanh")
