import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, p):
        return torch.special.entr(p).sum(1)


def get_inputs():
    return [torch.softmax(8 * torch.randn(256, 64), 1)]


def get_init_inputs():
    return []
