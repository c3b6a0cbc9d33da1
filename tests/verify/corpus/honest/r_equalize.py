"""By counts of all images at once.

reference: r_equalize
device: cpu
verdict: SAME
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
        lo = torch.where(cdf > 0, cdf, torch.full_like(cdf, n)).amin(1, keepdim=True)
        lut = (cdf - lo).clamp_(min=0).float() / (n - lo).clamp_(min=1).float()
        return lut.gather(1, flat).view(img.shape)
