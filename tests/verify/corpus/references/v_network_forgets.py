import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n, h):
        super().__init__()
        self.rnn = nn.RNN(n, h, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[1][0]


def get_inputs():
    return [torch.randn(8, 192, 16)]


def get_init_inputs():
    return [16, 32]
