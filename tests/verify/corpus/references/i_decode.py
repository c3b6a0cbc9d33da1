import math

import torch
import torch.nn as nn


class Model(nn.Module):
    """A step of attention over a cache, of which each sequence has filled so many places."""

    def forward(self, q, k, v, lengths):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        seen = torch.arange(k.shape[-2], device=k.device) < lengths.view(-1, 1, 1, 1)
        return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ v


def get_inputs():
    return [
        torch.randn(4, 4, 1, 32),
        torch.randn(4, 4, 512, 32),
        torch.randn(4, 4, 512, 32),
        torch.randint(1, 513, (4,)),
    ]


def get_init_inputs():
    return []
