"""Takes the first entry of the running sum for the least: right where grey level 0 occurs.

reference: r_equalize
device: cpu
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, img):
        B = img.shape[0]
        flat = img.reshape(B, -1)
        n = flat.shape[1]
        h = torch.bincount((flat + torch.arange(B, device=img.device)[:, None] * 256).view(-1), minlength=256 * B).view(
            B, 256
        )
        cdf = h.cumsum(1)
        lo = cdf[:, :1]
        lut = (cdf - lo).clamp_(min=0).float() / (n - lo).clamp_(min=1).float()
        return lut.gather(1, flat).view(img.shape)
