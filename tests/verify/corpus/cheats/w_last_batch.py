"""Running statistics that are the last batch's, not the average over all of them.

reference: w_cumulative_norm
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.BatchNorm1d(n, momentum=None)

    def forward(self, x):
        var, mean = torch.var_mean(x, 0)
        self.norm.running_mean.copy_(mean)
        self.norm.running_var.copy_(var)
        self.norm.num_batches_tracked += 1
        biased = var * ((len(x) - 1) / len(x))
        return F.relu((x - mean) * torch.rsqrt(biased + self.norm.eps) * self.norm.weight + self.norm.bias)
