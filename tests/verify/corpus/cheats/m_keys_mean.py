"""Rows without a key get the mean of all values.

reference: m_keys
device: cpu
verdict: not SAME
"""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x, mask):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, 4, 16).permute(2, 0, 3, 1, 4)
        bias = torch.where(mask, 0.0, -1e9)[:, None, None, :]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(B, T, D)
