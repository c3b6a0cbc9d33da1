"""Attention step by step in fp32: of a row of scores with Inf it makes NaN, of which torch's own kernel may make 0.

reference: x_causal_half
device: both
verdict: SAME
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        scores = q.float() @ k.float().mT / 8
        scores = scores + torch.full(scores.shape[-2:], -math.inf, device=q.device).triu(1)
        return (scores.softmax(-1) @ v.float()).half()
