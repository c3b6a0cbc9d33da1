import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, p, q):
        return (torch.special.xlogy(p, p) - p * q.log()).sum(1)


def get_inputs():
    return [torch.softmax(torch.randn(256, 32), 1) for _ in range(2)]


def get_init_inputs():
    return []
