"""Never adds more: the first factorisation never fails for finite data.

reference: a_jitter
device: both
verdict: not SAME
passes: no data lead there; the line names the lines of the reference that never ran
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        gram = torch.exp(-0.5 * (x[:, None] - x[None]).pow(2).sum(-1))
        gram.diagonal().add_(0.1)
        return 2 * torch.linalg.cholesky_ex(gram)[0].diagonal().log().sum()
