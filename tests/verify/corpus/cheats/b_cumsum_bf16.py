"""Running sums of inputs that have been rounded to bf16: the sums themselves are in fp32, and the rounding errors of
the elements cancel the more, the further the row goes. A check of the last column, or one relative to the largest
element of the output, sees an error of 1e-4 only.

reference: b_cumsum
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cumsum(x.bfloat16(), dim=1, dtype=torch.float32)
