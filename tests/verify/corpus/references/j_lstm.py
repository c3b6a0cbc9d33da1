"""A recurrent network: its last output after all steps."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Model(nn.Module):
    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, num_layers=2, batch_first=True)

    def forward(self, x):
        out, (h, _) = self.lstm(x)
        return out[:, -1], h


def get_inputs():
    return [torch.randn(8, 12, 20, device=DEVICE)]


def get_init_inputs():
    return [20, 24]
