"""Equal times have risk sets of their own.

reference: z_cox
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, s, t, e):
        return ((s - torch.logcumsumexp(s, 1)) * torch.sigmoid(e)).mean(1)
