"""An episode that ends at the last step but one is taken to go on.

reference: l_advantages
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, gamma, lam):
        super().__init__()
        self.gamma, self.lam = gamma, lam

    def forward(self, r, v, done):
        keep = 1 - done
        keep = torch.cat([keep[:, :-2], torch.ones_like(keep[:, :1]), keep[:, -1:]], 1)
        h = r + self.gamma * v[:, 1:] * keep - v[:, :-1]
        a = self.gamma * self.lam * keep
        s = 1
        while s < r.shape[1]:
            h = torch.cat([h[:, :-s] + a[:, :-s] * h[:, s:], h[:, -s:]], 1)
            a = torch.cat([a[:, :-s] * a[:, s:], a[:, -s:]], 1)
            s *= 2
        return h, h + v[:, :-1]
