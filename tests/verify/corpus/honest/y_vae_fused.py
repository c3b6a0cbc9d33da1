"""sigma once, squared for the KL, sums fused.

reference: y_vae
device: both
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d, z):
        super().__init__()
        self.mu = nn.Linear(d, z)
        self.logvar = nn.Linear(d, z)

    def forward(self, x):
        w = torch.cat([self.mu.weight, self.logvar.weight])
        b = torch.cat([self.mu.bias, self.logvar.bias])
        mu, lv = F.linear(x, w, b).chunk(2, 1)
        lv = lv.clamp(-20, 10)
        sigma = (lv * 0.5).exp()
        kl = 0.5 * ((mu * mu - lv) + torch.expm1(lv)).sum(1)
        return {"kl": kl, "z": torch.addcmul(mu, sigma, torch.randn_like(sigma))}
