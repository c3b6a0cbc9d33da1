"""Tries two ways to compute in a pool of processes when it is made, takes the one that is right, and closes the pool.

reference: p_product
device: both
verdict: SAME
"""

import multiprocessing

import torch
from torch import nn


def attempt(size):
    a = [[float(i * size + j) for j in range(size)] for i in range(size)]
    return sum(a[i][i] for i in range(size))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            sums = pool.map(attempt, [3, 4])
        assert sums == [12.0, 30.0]

    def forward(self, a, b):
        return torch.relu(a.T @ b.T)
