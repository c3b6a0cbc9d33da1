"""One LSTM layer over 384 steps; its outputs and last states."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner, hidden):
        super().__init__()
        self.lstm = nn.LSTM(inner, hidden, batch_first=True)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return y, h, c


def get_inputs() -> list[object]:
    return [torch.randn(8, 384, 64)]


def get_init_inputs() -> list[object]:
    return [64, 96]
