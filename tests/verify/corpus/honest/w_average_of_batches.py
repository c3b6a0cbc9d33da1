"""Running statistics as an average over all batches, by hand.

reference: w_cumulative_norm
device: both
verdict: SAME
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
        self.norm.num_batches_tracked += 1
        share = 1.0 / self.norm.num_batches_tracked
        self.norm.running_mean.add_((mean - self.norm.running_mean) * share)
        self.norm.running_var.add_((var - self.norm.running_var) * share)
        biased = var * ((len(x) - 1) / len(x))
        return F.relu((x - mean) * torch.rsqrt(biased + self.norm.eps) * self.norm.weight + self.norm.bias)
