"""What the mask hides is set to -Inf, so that a NaN there hides nothing; the reference adds it.

reference: w_added_mask
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v, mask):
        scores = q @ k.mT / 8
        return torch.softmax(torch.where(mask.isneginf(), mask, scores + mask), -1) @ v
