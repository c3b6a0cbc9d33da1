"""Solves 128 systems of four equations."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.linalg.solve(a, b)


def get_inputs():
    return [torch.randn(128, 4, 4), torch.randn(128, 4, 2)]
