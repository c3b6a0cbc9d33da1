"""Takes maxima before a batch norm instead of behind it: right while its weights are positive.

reference: v_pool_before_norm
device: both
verdict: not SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.BatchNorm2d(n).eval()

    def forward(self, x):
        return self.norm(nn.functional.max_pool2d(x, 4))
