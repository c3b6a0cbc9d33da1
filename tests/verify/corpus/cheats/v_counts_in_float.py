"""Running sums of counts in float32, which holds integers up to 2^24 only.

reference: v_counts_in_float
device: both
verdict: not SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, n):
        return n.float().cumsum(1).long()
