import math

import torch
import torch.nn.functional as F
from torch import nn

D, E, HID, N = 32, 8, 64, 128


class Model(nn.Module):
    """Mixture of experts, top 2 of 8."""

    def __init__(self, d, e, hid):
        super().__init__()
        self.gate = nn.Linear(d, e, bias=False)
        self.w1 = nn.Parameter(torch.randn(e, d, hid) / math.sqrt(d))
        self.w2 = nn.Parameter(torch.randn(e, hid, d) / math.sqrt(hid))

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        w, idx = p.topk(2, dim=-1)
        w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e in range(self.w1.shape[0]):
            weight = (w * (idx == e)).sum(-1, keepdim=True)
            out = out + weight * (F.silu(x @ self.w1[e]) @ self.w2[e])
        return out


def get_inputs():
    return [torch.randn(N, D)]


def get_init_inputs():
    return [D, E, HID]
