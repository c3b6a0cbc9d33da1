"""A convolution written as a product of patches in TF32, where the setting for convolutions is not looked at: a judge
that switches off TF32 in cuDNN only, or compares with a reference that runs in TF32 itself, sees no difference.

reference: b_conv2d
device: cuda
verdict: not SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, device="cuda")

    def forward(self, x):
        weight = self.conv.weight.flatten(1)
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        patches = F.unfold(x, 3, padding=1)
        result = torch.baddbmm(self.conv.bias[None, :, None], weight.expand(len(x), -1, -1), patches)
        torch.set_float32_matmul_precision(before)
        return result.view(x.shape[0], -1, *x.shape[2:])
