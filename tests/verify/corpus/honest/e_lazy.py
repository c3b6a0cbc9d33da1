"""ReLU in place.

reference: e_lazy
device: cpu
verdict: SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.LazyConv2d(16, 3),
            nn.LazyBatchNorm2d(),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.LazyLinear(10),
        )

    def forward(self, x):
        return self.net(x)
