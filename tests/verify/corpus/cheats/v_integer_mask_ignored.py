"""Ignores an attention mask of integers, which get_inputs makes all ones.

reference: v_integer_mask_ignored
device: both
verdict: not SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v, mask):
        return nn.functional.scaled_dot_product_attention(q, k, v)
