"""Counts edges below, which are in order.

reference: s_bucketize_counting
device: both
verdict: SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, edges):
        return (x[..., None] > edges).sum(-1)
