"""Chooses by a mask; how many, depends on the data.

reference: s_masked_select_copy
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # a copy of the reference
    def forward(self, x):
        return torch.masked_select(x, x > 0.5)
