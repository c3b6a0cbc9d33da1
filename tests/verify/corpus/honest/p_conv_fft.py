"""The convolution in the frequency domain: images and weights transformed, multiplied, transformed back.

reference: b_conv2d
device: both
verdict: SAME
"""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, device=DEVICE)

    def forward(self, x):
        if not bool(x.isfinite().all()):
            return self.conv(x)
        h, w = x.shape[2:]
        size = (h + 4, w + 4)
        a = torch.fft.rfft2(x, s=size)
        b = torch.fft.rfft2(self.conv.weight.flip(2, 3), s=size)
        product = torch.einsum("nchw,ochw->nohw", a, b)
        out = torch.fft.irfft2(product, s=size)[:, :, 1 : h + 1, 1 : w + 1]
        return out + self.conv.bias[:, None, None]
