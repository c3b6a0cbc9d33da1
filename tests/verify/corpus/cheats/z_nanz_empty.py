"""NaN for rows with one valid value, where the reference has 0.

reference: z_nanz
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ok = ~torch.isnan(x)
        n = ok.sum(1, keepdim=True)
        mu = torch.nansum(x, 1, keepdim=True) / n
        d = torch.where(ok, x - mu, 0.0)
        return d / ((d.square().sum(1, keepdim=True) / (n - 1)).sqrt() + 1e-6)
