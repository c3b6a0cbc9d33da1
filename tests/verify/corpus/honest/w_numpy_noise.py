"""Draws from Python's generator and numpy's, as the reference does.

reference: w_numpy_noise
device: both
verdict: SAME
"""

import random

import numpy as np
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)

    def forward(self, x):
        scale = 1.0 + 0.1 * random.random() + 0.1 * float(np.random.rand())  # noqa: NPY002
        return self.linear(x).relu_().mul_(scale)
