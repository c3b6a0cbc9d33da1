"""Adds two tables of logarithms."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.logaddexp(a, b)


def get_inputs():
    return [torch.randn(64, 256), torch.randn(64, 256)]
