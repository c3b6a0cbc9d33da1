"""The logarithm of the sum by a series of five terms: an error of 2e-5 of the fraction's logarithm.

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
        series = 2 * z * (1 + z * z * (1 / 3 + z * z / 5))
        log = series + (e - 0.5) * 0.6931471805599453
        return torch.where(s.isfinite() & (s > 0), log, s.log()) + top
