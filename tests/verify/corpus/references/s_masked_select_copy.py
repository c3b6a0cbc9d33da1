import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.masked_select(x, x > 0.5)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
