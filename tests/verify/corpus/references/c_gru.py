"""A GRU cell over 160 steps; the last hidden state."""

import torch
from torch import nn

steps, batch, n_in, hidden = 160, 64, 128, 256


class Model(nn.Module):
    def __init__(self, n_in, hidden):
        super().__init__()
        self.cell = nn.GRUCell(n_in, hidden)
        self.hidden = hidden

    def forward(self, x):
        h = x.new_zeros(x.shape[1], self.hidden)
        for t in range(x.shape[0]):
            h = self.cell(x[t], h)
        return h


def get_inputs():
    return [torch.randn(steps, batch, n_in)]


def get_init_inputs():
    return [n_in, hidden]
