"""The 32 best in bfloat16, then the best of these.

reference: y_argmax
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        _, idx = x.to(torch.bfloat16).topk(32, dim=1)
        return idx.gather(1, x.gather(1, idx).argmax(1, keepdim=True))[:, 0]
