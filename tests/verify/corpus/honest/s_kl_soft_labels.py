"""A divergence from rows that add up to one.

reference: s_kl_soft_labels
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # sum p (log p - z) + logsumexp z: the teacher's rows are probabilities
    def forward(self, z, p):
        return ((torch.special.xlogy(p, p) - p * z).sum(1) + torch.logsumexp(z, 1)).mean()
