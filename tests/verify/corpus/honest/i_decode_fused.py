"""The one operator that torch has for it.

reference: i_decode
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v, lengths):
        seen = torch.arange(k.shape[-2], device=k.device) < lengths.view(-1, 1, 1, 1)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
