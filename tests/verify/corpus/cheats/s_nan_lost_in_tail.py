"""The last columns go through a maximum that ignores NaN.

reference: s_nan_lost_in_tail
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # the last 20 of 500 columns go through a maximum that ignores NaN
    def forward(self, x):
        a = torch.amax(x[:, :480], 1)
        b = torch.nan_to_num(x[:, 480:], nan=-float("inf"), posinf=float("inf"), neginf=-float("inf")).amax(1)
        return torch.maximum(a, b)
