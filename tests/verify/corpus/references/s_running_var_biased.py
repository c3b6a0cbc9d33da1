import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm2d(16)
        self.conv = nn.Conv2d(3, 16, 3, padding=1)

    def forward(self, x):
        return F.dropout(torch.relu(self.bn(self.conv(x))), 0.1)


def get_inputs():
    return [torch.randn(8, 3, 16, 16)]


def get_init_inputs():
    return []
