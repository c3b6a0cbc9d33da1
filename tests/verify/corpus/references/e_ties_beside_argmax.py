import torch
import torch.nn as nn


class Model(nn.Module):
    """Votes: the winner of each row, and how many share the first place."""

    def forward(self, x):
        best, winner = x.max(-1)
        shared = (x == best[:, None]).sum(-1)
        return winner, shared


def get_inputs():
    return [torch.randn(1024, 2048)]


def get_init_inputs():
    return []
