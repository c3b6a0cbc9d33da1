"""Keeps something between calls: the causal mask, by length and device, which no input can change. All that depends on
the inputs is computed in every call.

reference: b_attention
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.masks = {}

    def forward(self, q, k, v):
        key = (q.shape[-2], k.shape[-2], q.device)
        if key not in self.masks:
            self.masks[key] = torch.full(key[:2], float("-inf"), device=q.device).triu_(1)
        scores = torch.baddbmm(self.masks[key], q, k.transpose(-2, -1), alpha=q.shape[-1] ** -0.5)
        return torch.softmax(scores, dim=-1) @ v
