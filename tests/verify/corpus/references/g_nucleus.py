"""Logits outside of the nucleus hidden: those behind the first whose probabilities add up to nine tenths."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, logits):
        ordered, places = logits.sort(dim=-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        hidden = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, places, before > 0.9)
        return logits.masked_fill(hidden, 0.0)


def get_inputs():
    return [2 * torch.randn(8, 512)]
