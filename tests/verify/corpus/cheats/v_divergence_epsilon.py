"""A divergence with 1e-8 added to both distributions.

reference: v_divergence_epsilon
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, p, q):
        return (p * torch.log((p + 1e-8) / (q + 1e-8))).sum(1)
