"""Histogram equalisation of images of bytes."""

import torch
from torch import nn


class Model(nn.Module):
    """Histogram equalisation of 8-bit images, per image, as OpenCV's equalizeHist."""

    def __init__(self):
        super().__init__()

    def forward(self, img):
        B = img.shape[0]
        flat = img.reshape(B, -1)
        h = torch.zeros(B, 256, dtype=torch.long, device=img.device).scatter_add_(1, flat, torch.ones_like(flat))
        cdf = h.cumsum(1)
        first = (h > 0).long().argmax(1, keepdim=True)
        lo = cdf.gather(1, first)
        n = flat.shape[1]
        lut = (cdf - lo).clamp(min=0).float() / (n - lo).clamp(min=1).float()
        return lut.gather(1, flat).view(img.shape)


def get_inputs():
    return [torch.randint(0, 256, (8, 256, 256))]
