"""Computes the halves of the product in two threads of a pool that lives as long as the model, and waits for both.

reference: p_product
device: cpu
verdict: SAME
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(2)

    def forward(self, a, b):
        half = a.shape[1] // 2
        parts = list(self.pool.map(lambda part: torch.relu(part.T @ b.T), (a[:, :half], a[:, half:])))
        return torch.cat(parts)
