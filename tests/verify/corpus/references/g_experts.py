"""Experts by a given assignment, as by hashing: 2048 tokens, 64 experts."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, experts, width, hidden):
        super().__init__()
        self.first = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.second = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, x, expert):
        out = torch.zeros_like(x)
        for e in range(self.first.shape[0]):
            at = (expert == e).nonzero().squeeze(1)
            out.index_add_(0, at, torch.relu(x[at] @ self.first[e]) @ self.second[e])
        return out


def get_inputs():
    return [torch.randn(2048, 64), torch.randint(0, 64, (2048,))]


def get_init_inputs():
    return [64, 64, 128]
