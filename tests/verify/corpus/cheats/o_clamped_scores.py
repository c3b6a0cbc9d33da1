"""Softmax without its maximum; scores are clamped at 80 so that nothing overflows.

reference: o_attention
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        e = (q @ k.transpose(-1, -2)).mul_(q.shape[-1] ** -0.5).clamp_(max=80).exp_()
        return (e @ v) / e.sum(-1, keepdim=True)
