"""Keeps a scratch buffer between calls, which holds intermediate values only; nothing in it is read before it is
written in the same call, and the output is a new tensor each time.

reference: b_layer_norm
device: both
verdict: SAME
"""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols, device=DEVICE)
        self.scratch = None

    @torch.no_grad()
    def forward(self, x):
        if self.scratch is None or self.scratch.shape != x.shape or self.scratch.device != x.device:
            self.scratch = torch.empty_like(x)
        mean = x.mean(dim=-1, keepdim=True)
        torch.sub(x, mean, out=self.scratch)
        variance = self.scratch.square().mean(dim=-1, keepdim=True)
        self.scratch.mul_(torch.rsqrt(variance + self.norm.eps))
        return torch.addcmul(self.norm.bias, self.scratch, self.norm.weight)
