import torch
import torch.nn as nn


class Model(nn.Module):
    """Mostly 64 different values, now and then 63."""

    def forward(self, x):
        return torch.unique(x), x * 2


def get_inputs():
    return [torch.randint(0, 64, (480,))]


def get_init_inputs():
    return []
