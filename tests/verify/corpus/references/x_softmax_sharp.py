import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(3 * x, -1)


def get_inputs():
    return [torch.randn(64, 512)]
