"""Hands everything to torch's fused attention with its own causal mask: another order of the sums, a softmax that runs
along with them, and no matrix of scores, but fp32 throughout.

reference: b_attention
device: both
verdict: SAME
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
