"""Keeps the result of a search for the best block in a file of its home folder, as compilers and tuners do, and reads
it at the next start.

reference: p_product
device: both
verdict: SAME
"""

import json
from pathlib import Path

import torch
from torch import nn

CACHE = Path.home() / ".cache" / "blocks.json"


def best_block():
    if CACHE.exists():
        return json.loads(CACHE.read_text())["block"]
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    CACHE.write_text(json.dumps({"block": 64}))
    return json.loads(CACHE.read_text())["block"]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = best_block()

    def forward(self, a, b):
        blocks = [torch.relu(a[:, i : i + self.block].T @ b.T) for i in range(0, a.shape[1], self.block)]
        return torch.cat(blocks)
