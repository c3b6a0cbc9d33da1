"""A small MLP."""

import torch
from torch import nn

batch, n_in, width, n_out = 512, 1024, 2048, 512


class Model(nn.Module):
    def __init__(self, n_in, width, n_out):
        super().__init__()
        self.fc1 = nn.Linear(n_in, width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, n_out)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def get_inputs():
    return [torch.rand(batch, n_in)]


def get_init_inputs():
    return [n_in, width, n_out]
