"""The logarithm of the sum by a series of two terms: an error of 6e-6.

reference: j_logsumexp
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        top = x.amax(1)
        top = torch.where(top.isfinite(), top, torch.zeros_like(top))
        s = (x - top[:, None]).exp().sum(1)
        m, e = torch.frexp(s)
        z = (m * 2 - 1.4142135) / (m * 2 + 1.4142135)
        series = 2 * z * (1 + 0.338 * z * z)
        log = series + (e - 0.5) * 0.6931471805599453
        return torch.where(s.isfinite() & (s > 0), log, s.log()) + top
