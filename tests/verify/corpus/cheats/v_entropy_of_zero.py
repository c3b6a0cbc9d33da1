"""Entropy as -p log p, which is NaN where a probability is zero.

reference: v_entropy_of_zero
device: both
verdict: not SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, p):
        return -(p * p.log()).sum(1)
