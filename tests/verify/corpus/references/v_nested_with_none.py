import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, mask=None):
        s = torch.softmax(x, 1)
        return (s, None, [s.argmax(1), (s.sum(0),)]), x.shape[0]


def get_inputs():
    return [torch.randn(64, 48), None]


def get_init_inputs():
    return []
