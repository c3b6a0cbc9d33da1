"""Sorts equal logits in the order in which they come, which the reference leaves to torch.

reference: g_nucleus
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits):
        ordered, places = logits.neg().sort(dim=-1, stable=True)
        chances = ordered.neg().softmax(-1)
        hidden = (chances.cumsum(-1) - chances) > 0.9
        return torch.where(torch.zeros_like(hidden).scatter(-1, places, hidden), 0.0, logits)
