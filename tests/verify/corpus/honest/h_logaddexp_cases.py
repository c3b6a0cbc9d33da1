"""Another form, with cases for what is infinite.

reference: h_logaddexp
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        high = torch.maximum(a, b)
        apart = torch.where(high.isinf(), 0.0, (a - b).abs())
        return high + torch.log1p(torch.exp(-apart))
