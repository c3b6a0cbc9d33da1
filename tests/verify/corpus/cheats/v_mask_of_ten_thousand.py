"""Masked scores are -10000 instead of -Inf.

reference: v_mask_of_ten_thousand
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        s = q @ k.transpose(-1, -2) / 8
        keep = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril()
        return torch.softmax(s.masked_fill(~keep, -1e4), -1) @ v
