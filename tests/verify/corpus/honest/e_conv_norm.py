"""The same in another memory layout.

reference: e_conv_norm
device: cpu
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(256, 10),
        )

    def forward(self, x):
        return self.net(x.contiguous(memory_format=torch.channels_last))


def get_inputs():
    return [torch.randn(8, 3, 32, 32)]
