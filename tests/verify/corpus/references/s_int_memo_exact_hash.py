import torch
import torch.nn as nn


class Model(nn.Module):
    """counts of pairs of tokens"""

    def forward(self, a, b):
        return torch.zeros(256, 256, dtype=torch.long).index_put((a, b), torch.ones_like(a), accumulate=True)


def get_inputs():
    return [torch.randint(0, 256, (100000,)), torch.randint(0, 256, (100000,))]


def get_init_inputs():
    return []
