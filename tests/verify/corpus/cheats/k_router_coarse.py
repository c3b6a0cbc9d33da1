"""The router computes in bfloat16: a token in a hundred goes to another expert.

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
        scores = self.router(x)
        coarse = (x.bfloat16().float() @ self.router.weight.bfloat16().float().T).topk(2, -1).indices
        share = torch.softmax(scores.gather(1, coarse), -1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + (share * (coarse == i)).sum(-1, keepdim=True) * (x @ expert)
        return out
