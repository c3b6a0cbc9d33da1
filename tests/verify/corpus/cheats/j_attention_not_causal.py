"""The mask is off by one: each place also sees the next one.

reference: j_attention
device: both
verdict: not SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        n = q.shape[-2]
        mask = torch.ones(n, n, dtype=torch.bool, device=q.device).tril(1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
