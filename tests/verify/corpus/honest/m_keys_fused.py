"""torch's own attention.

reference: m_keys
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x, mask):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, 4, 16).permute(2, 0, 3, 1, 4)
        bias = torch.zeros(B, T).masked_fill_(~mask, float("-inf"))
        s = torch.matmul(q * 0.25, k.transpose(-1, -2)) + bias[:, None, None, :]
        p = s.softmax(-1)
        o = (p @ v).transpose(1, 2).reshape(B, T, D)
        return torch.where(mask.any(-1)[:, None, None], o, 0.0)
