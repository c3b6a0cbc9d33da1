"""A cache that is full loses its newest entry.

reference: i_decode
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v, lengths):
        last = k.shape[-2] - 1
        seen = torch.arange(last + 1, device=k.device) < lengths.clamp(max=last).view(-1, 1, 1, 1)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
