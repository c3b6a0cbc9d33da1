import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.amax(x, 1)


def get_inputs():
    return [torch.randn(256, 500)]


def get_init_inputs():
    return []
