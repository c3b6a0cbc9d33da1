"""Argmax in two steps: the block with the largest maximum, then the place in it.

reference: y_argmax
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        b, v = x.shape
        blk = x.view(b, 64, v // 64) if x.is_contiguous() else x.reshape(b, 64, v // 64)
        which = blk.amax(2).argmax(1)
        return which * (v // 64) + blk[torch.arange(b, device=x.device), which].argmax(1)
