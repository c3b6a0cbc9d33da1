"""The convolution as one product per image with the unfolded image, ReLU in place.

reference: o_conv_relu
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1)

    def forward(self, x):
        n, _, h, w = x.shape
        columns = torch.nn.functional.unfold(x, 3, padding=1)
        weight = self.conv.weight.flatten(1)
        return torch.matmul(weight, columns).add_(self.conv.bias[:, None]).relu_().view(n, -1, h, w)
