"""Its own softmax.

reference: r_cache
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v, lengths):
        T = k.shape[2]
        mask = (torch.arange(T, device=k.device)[None, :] < lengths[:, None])[:, None, None, :]
        s = (q * (q.shape[-1] ** -0.5)) @ k.transpose(-1, -2)
        s = torch.where(mask, s, torch.full_like(s, float("-inf")))
        m = s.amax(-1, keepdim=True)
        m = torch.where(torch.isinf(m) & (lengths == 0)[:, None, None, None], torch.zeros_like(m), m)
        e = torch.exp(s - m)
        l = e.sum(-1, keepdim=True)
        o = e @ v / l
        return torch.where((lengths > 0)[:, None, None, None], o, torch.zeros_like(o))
