import torch
from torch import nn


class Model(nn.Module):
    """Each token goes to two of sixteen experts: now and then the second and the third are as good, to the last bits."""

    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.Parameter(torch.randn(experts, width, width) * width**-0.5)

    def forward(self, x):
        share, place = torch.softmax(self.router(x), -1).topk(2, -1)
        share = share / share.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + (share * (place == i)).sum(-1, keepdim=True) * (x @ expert)
        return out


def get_inputs():
    return [torch.randn(16384, 32)]


def get_init_inputs():
    return [32, 16]
