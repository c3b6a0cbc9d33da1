"""The convolution as a product of the weight and a matrix of patches, which it makes without copying as a strided view
where it can: sums in another order, the same number of terms.

reference: b_conv2d
device: both
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, device=DEVICE)

    def forward(self, x):
        batch, channels, rows, cols = x.shape
        padded = F.pad(x, (1, 1, 1, 1))
        view = padded.as_strided((batch, channels, 3, 3, rows, cols), (*padded.stride(), *padded.stride()[2:]))
        patches = view.reshape(batch, channels * 9, rows * cols)
        weight = self.conv.weight.view(1, -1, channels * 9).expand(batch, -1, -1)
        result = torch.baddbmm(self.conv.bias[None, :, None], weight, patches)
        return result.view(batch, -1, rows, cols)
