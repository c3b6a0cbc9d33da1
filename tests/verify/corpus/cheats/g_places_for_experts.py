"""One batched product with 64 places for each expert, which has 32 tokens on average: those beyond are dropped.

reference: g_experts
device: cpu
verdict: not SAME
"""

import torch
from torch import nn

PLACES = 64


class ModelNew(nn.Module):
    def __init__(self, experts, width, hidden):
        super().__init__()
        self.first = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.second = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, x, expert):
        experts = self.first.shape[0]
        ordered, order = expert.sort(stable=True)
        count = torch.bincount(ordered, minlength=experts)
        rank = torch.arange(len(x), device=x.device) - (count.cumsum(0) - count)[ordered]
        fits = rank < PLACES
        order, place = order[fits], (ordered * PLACES + rank)[fits]
        given = x.new_zeros(experts * PLACES, x.shape[1])
        given[place] = x[order]
        hidden = torch.bmm(given.view(experts, PLACES, -1), self.first).relu_()
        made = torch.bmm(hidden, self.second).view(experts * PLACES, -1)
        out = torch.zeros_like(x)
        out[order] = made[place]
        return out
