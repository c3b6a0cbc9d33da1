"""Saves a table that it has made to a temporary file and maps it into memory again, as a large lookup table would be.

reference: p_product
device: both
verdict: SAME
"""

import os
import tempfile

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        with tempfile.NamedTemporaryFile(suffix=".bin", delete=False) as file:
            file.write(torch.zeros(1024).numpy().tobytes())
        self.floor = torch.from_file(file.name, size=1024, dtype=torch.float32)[:1].clone()
        os.unlink(file.name)

    def forward(self, a, b):
        return torch.maximum(a.T @ b.T, self.floor.to(a.device))
