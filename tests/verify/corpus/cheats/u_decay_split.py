"""Decays as quotients of exponentials, which overflow where they decay fast.

reference: u_decay
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay = nn.Parameter(torch.randn(64, 8))

    def forward(self, x):
        c = self.decay.cumsum(0)
        between = (torch.exp(c)[:, None] * torch.exp(-c)[None]) * torch.ones(64, 64, device=x.device).tril()[..., None]
        return torch.einsum("tsh,bshd->bthd", between, x)
