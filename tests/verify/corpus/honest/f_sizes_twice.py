"""Twice the sizes are put in order.

reference: f_sizes_in_order
device: cpu
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sort((x + x).abs(), dim=-1, stable=True).values
