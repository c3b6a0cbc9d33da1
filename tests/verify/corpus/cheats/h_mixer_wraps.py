"""Adds in 16 bits.

reference: h_mixer
device: both
verdict: not SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a + b
