"""Each expert has its own tokens alone, and the router's sums come in another order.

reference: k_router
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.Parameter(torch.randn(experts, width, width) * width**-0.5)

    def forward(self, x):
        half = x.shape[1] // 2
        scores = x[:, half:] @ self.router.weight[:, half:].T + x[:, :half] @ self.router.weight[:, :half].T
        best, place = scores.topk(2, -1)
        share = torch.softmax(best, -1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, which = (place == i).nonzero(as_tuple=True)
            out.index_add_(0, token, share[token, which, None] * (x[token] @ expert))
        return out
