"""Of one token in five hundred the third best expert is taken for the second.

reference: k_router
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.Parameter(torch.randn(experts, width, width) * width**-0.5)

    def forward(self, x):
        best, place = self.router(x).topk(3, -1)
        close = (best[:, 1:2] - best[:, 2:]) < 1e-3  # as good, thinks its author
        place = torch.where(close, place[:, [0, 2]], place[:, :2])
        share = torch.softmax(torch.where(close, best[:, [0, 2]], best[:, :2]), -1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + (share * (place == i)).sum(-1, keepdim=True) * (x @ expert)
        return out
