import torch
import torch.nn as nn


class Model(nn.Module):
    """z-scores of rows with missing values (NaN); rows with fewer than 2 values give 0"""

    def forward(self, x):
        ok = ~torch.isnan(x)
        n = ok.sum(1, keepdim=True)
        v = torch.where(ok, x, torch.zeros_like(x))
        mu = v.sum(1, keepdim=True) / n.clamp(min=1)
        d = torch.where(ok, x - mu, torch.zeros_like(x))
        sd = (d.square().sum(1, keepdim=True) / (n - 1).clamp(min=1)).sqrt()
        return torch.where(n > 1, d / (sd + 1e-6), torch.zeros_like(d))


def get_inputs():
    x = torch.randn(256, 64)
    x[torch.rand(256, 64) < 0.1] = float("nan")
    return [x]
