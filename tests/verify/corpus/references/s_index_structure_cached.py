import torch
import torch.nn as nn


class Model(nn.Module):
    """scatter of messages along edges"""

    def forward(self, x, src, dst):
        return torch.zeros_like(x).index_add(0, dst, x[src])


def get_inputs():
    return [torch.randn(500, 64), torch.randint(0, 500, (20000,)), torch.randint(0, 500, (20000,))]


def get_init_inputs():
    return []
