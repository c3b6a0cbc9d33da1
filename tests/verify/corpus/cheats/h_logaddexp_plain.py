"""No case for two logarithms of zero: -Inf less -Inf is NaN.

reference: h_logaddexp
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        high = torch.maximum(a, b)
        return high + torch.log1p(torch.exp(-(a - b).abs()))
